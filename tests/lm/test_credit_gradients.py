"""Gradients of credits against automatic differentiation, and the effect of the shifts that follow from them."""

import numpy as np
import pytest
import torch

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import DataError, ShapeError
from tests.lm.test_extract import Interrupting
from tests.lm.tiny_models import texts, tiny_model, tiny_tokenizer

SITES = ["final", "layers.0"]
TOKENIZER = tiny_tokenizer()


def written(family="llama", n=3, **how):
    model = tiny_model(family, dtype=torch.float64)
    drawn = lm.generate(
        model, TOKENIZER, texts(4, seed=7, longest=4), n=n, max_new_tokens=5, top_p=1.0, progress=False, **how
    )
    rng = np.random.default_rng(0)
    return model, drawn, [rng.normal(size=len(g.tokens)) for g in drawn]


def by_autograd(model, drawn, given, site, *, generated):
    """Return the gradient rows by differentiating Σ_t (credit_t − baseline) log p(x_t) of each text."""
    place = lm.resolve_site(model, site)
    prompts = sorted({g.index for g in drawn})
    base = {i: np.mean(np.concatenate([c for g, c in zip(drawn, given, strict=True) if g.index == i])) for i in prompts}
    rows = {i: [] for i in prompts}
    for g, credit in zip(drawn, given, strict=True):
        ids, start = [*g.prompt_tokens, *g.tokens], len(g.prompt_tokens) - 1
        shift = torch.zeros(place.width, dtype=torch.float64, requires_grad=True)
        where = torch.ones(len(ids), 1, dtype=torch.float64)
        if generated:
            where[:start] = 0

        def moved(module, args, output, where=where, shift=shift):
            return (
                output + where * shift if isinstance(output, torch.Tensor) else (output[0] + where * shift, *output[1:])
            )

        handle = place.module.register_forward_hook(moved)
        log_p = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(dim=-1)
        handle.remove()
        taken = log_p[torch.arange(start, start + len(g.tokens)), torch.tensor(g.tokens)]
        (taken * torch.from_numpy(credit - base[g.index])).sum().backward()
        rows[g.index].append(shift.grad.numpy())
    return np.stack([np.mean(rows[i], axis=0) for i in prompts])


@pytest.mark.parametrize("family", ["llama", "gemma2"])
@pytest.mark.parametrize("positions", ["all", "generated"])
def test_credit_gradients_are_those_of_the_log_likelihood(family, positions):
    model, drawn, given = written(family)
    found = lm.credit_gradients(
        model, TOKENIZER, drawn, given, sites=SITES, positions=positions, batch_size=5, progress=False
    )
    for site in SITES:
        expected = by_autograd(model, drawn, given, site, generated=positions == "generated")
        np.testing.assert_allclose(found[site], expected, rtol=0, atol=1e-10 * np.abs(expected).max())


def test_equal_credits_have_no_gradient():
    model, drawn, _ = written()
    equal = [np.full(len(g.tokens), 1.0 + g.index) for g in drawn]
    found = lm.credit_gradients(model, TOKENIZER, drawn, equal, sites=SITES, progress=False)
    assert all(not gradients.any() for gradients in found.values())


def test_interrupted_gradients_go_on_where_they_stopped(tmp_path):
    model, drawn, given = written()
    options = {"sites": SITES, "batch_size": 3, "progress": False}
    expected = lm.credit_gradients(model, TOKENIZER, drawn, given, **options)
    passes = Interrupting(model, stop=3)
    with pytest.raises(KeyboardInterrupt):
        lm.credit_gradients(model, TOKENIZER, drawn, given, work_dir=tmp_path, **options)
    passes.remove()
    passes = Interrupting(model, stop=None)
    found = lm.credit_gradients(model, TOKENIZER, drawn, given, work_dir=tmp_path, **options)
    assert passes.passes == 4 - 2
    for site in SITES:
        np.testing.assert_allclose(found[site], expected[site], rtol=0, atol=1e-12 * np.abs(expected[site]).max())


@pytest.mark.parametrize("other", ["credits", "positions", "sites"])
def test_other_settings_are_another_job(tmp_path, other):
    model, drawn, given = written(n=2)
    options = {"sites": ["layers.0"], "progress": False}
    base = lm.credit_gradients(model, TOKENIZER, drawn, given, work_dir=tmp_path, **options)
    if other == "credits":
        given = [-credit for credit in given]
    options |= {"positions": {"positions": "generated"}, "sites": {"sites": ["layers.1"]}}.get(other, {})
    expected = lm.credit_gradients(model, TOKENIZER, drawn, given, **options)
    found = lm.credit_gradients(model, TOKENIZER, drawn, given, work_dir=tmp_path, **options)
    (site,) = found
    assert (found[site] == expected[site]).all()
    assert (found[site] != next(iter(base.values()))).any()


def test_bad_credits_are_refused():
    model, drawn, given = written()
    with pytest.raises(ShapeError, match="arrays of credits"):
        lm.credit_gradients(model, TOKENIZER, drawn, given[1:], sites=SITES, progress=False)
    with pytest.raises(ShapeError, match="one number for each"):
        lm.credit_gradients(model, TOKENIZER, drawn, [given[0][:-1], *given[1:]], sites=SITES, progress=False)
    with pytest.raises(DataError, match="NaN"):
        lm.credit_gradients(model, TOKENIZER, drawn, [given[0] * np.nan, *given[1:]], sites=SITES, progress=False)


BAD = list(range(10, 20))
"""Tokens whose credit is 1; all others have 0."""


def expected_credit(model, drawn, shift):
    """Return the expected credit per step at the steps of ``drawn``, with the final states shifted."""
    with torch.no_grad(), lm.steer(model, {"final": rs.Translation(shift)}):
        values = []
        for g in drawn:
            logits = model(input_ids=torch.tensor([[*g.prompt_tokens, *g.tokens]])).logits[0]
            p = logits[len(g.prompt_tokens) - 1 : len(g.prompt_tokens) - 1 + len(g.tokens)].softmax(dim=-1)
            values += p[:, BAD].sum(dim=-1).tolist()
    return np.mean(values)


def test_the_natural_shift_beats_its_rivals_at_equal_price():
    model = tiny_model("llama", dtype=torch.float64)
    prompts = texts(40, seed=8, longest=4)
    drawn = lm.generate(model, TOKENIZER, prompts, n=60, max_new_tokens=3, top_p=1.0, progress=False)
    given = [np.isin(g.tokens, BAD).astype(float) for g in drawn]
    gradients = lm.credit_gradients(model, TOKENIZER, drawn, given, sites=["final"], progress=False)["final"]
    fisher = lm.fisher(model, TOKENIZER, drawn, sites=["final"], progress=False)["final"]
    kl = 1e-3
    natural = rs.NaturalSteering(kl=kl, damping=0.0).fit(gradients, fisher=fisher)
    assert natural.certificate_.held_out_slope < -5 * natural.certificate_.held_out_error

    states = lm.states_along(model, TOKENIZER, drawn, progress=False)
    rows = np.concatenate([part[: len(c)] for part, c in zip(states, given, strict=True)])
    bad = np.concatenate(given) == 1
    rng = np.random.default_rng(0)
    rivals = {"gradient": -gradients.mean(axis=0), "means": rows[~bad].mean(axis=0) - rows[bad].mean(axis=0)}
    shift = natural.map_.shift
    for i in range(5):
        noise = rng.normal(size=len(shift))
        noise *= np.sqrt(0.25 * kl / fisher.kl(rs.Translation(noise)))  # half the length of the shift, in F
        rivals[f"perturbed {i}"] = shift + noise
    g = gradients.mean(axis=0)
    some = drawn[::8]
    base = expected_credit(model, some, np.zeros_like(shift))
    effect = expected_credit(model, some, shift) - base
    for name, rival in rivals.items():
        rival = rival * fisher.strength(rs.Translation(rival), kl)
        assert g @ shift < g @ rival, name
        assert effect < expected_credit(model, some, rival) - base, name
