"""F at "final" and below it, against exact Jacobians of tiny models in float64."""

import numpy as np
import pytest
import torch

from repsurgery import lm
from repsurgery.errors import CacheWarning, ModelError, ParameterError, SiteError
from tests.lm.test_extract import Interrupting
from tests.lm.tiny_models import DECODERS, MIXTURES, WIDTH, texts, tiny_model, tiny_tokenizer

SOME = texts(6, seed=4, longest=5)
MID = "layers.0"
ROUNDING = 1e-9
"""Of float64 passes through two layers, relative to the trace."""


def jacobians(model, ids, site, *, shared=slice(None)):
    """Return p (length, V) and ∂logits/∂δ (length, V, d) of one text, for a shift δ of its states at ``site``."""
    place = lm.resolve_site(model, site)

    def logits(shift):
        def hook(module, args, output):
            state = output[0] if isinstance(output, tuple) else output
            mask = torch.zeros(state.shape[1], 1, dtype=state.dtype)
            mask[shared] = 1
            moved = state + mask * shift
            return (moved, *output[1:]) if isinstance(output, tuple) else moved

        handle = place.module.register_forward_hook(hook)
        try:
            return model(input_ids=torch.tensor([ids])).logits[0]
        finally:
            handle.remove()

    width = place.width or WIDTH
    start = torch.zeros(width, dtype=torch.float64)
    J = torch.autograd.functional.jacobian(logits, start)
    with torch.no_grad():
        return logits(start).softmax(dim=-1), J


def exact(model, rows, site, steps=None, **how):
    """Return the mean over positions of Jᵀ(diag p − ppᵀ)J."""
    total, count = 0.0, 0
    for i, ids in enumerate(rows):
        p, J = jacobians(model, ids, site, **how)
        for t in range(len(ids))[steps[i] if steps else slice(None)]:
            C = torch.diag(p[t]) - torch.outer(p[t], p[t])
            total = total + J[t].T @ C @ J[t]
            count += 1
    return (total / count).numpy()


def tokens_of(tokenizer, some=SOME):
    return [tokenizer(text)["input_ids"] for text in some]


IN_FLOAT64 = [name for name in DECODERS if name not in MIXTURES]  # mixtures multiply in float32 at most


@pytest.mark.parametrize("family", IN_FLOAT64)
def test_the_matrix_at_final_is_exact(family):
    model, tokenizer = tiny_model(family, dtype=torch.float64), tiny_tokenizer()
    found = lm.fisher(model, tokenizer, SOME, sites=["final"], batch_size=4, progress=False)["final"]
    rows = tokens_of(tokenizer)
    assert found.count == sum(map(len, rows)) and found.samples == 0
    expected = exact(model, rows, "final")
    assert np.abs(found.matrix - expected).max() < ROUNDING * np.trace(expected)


def test_capped_logits_are_not_those_of_the_plain_closed_form():
    model, tokenizer = tiny_model("gemma2", dtype=torch.float64, final_logit_softcapping=1.0), tiny_tokenizer()
    capped = lm.fisher(model, tokenizer, SOME, sites=["final"], progress=False)["final"].matrix
    expected = exact(model, tokens_of(tokenizer), "final")
    assert np.abs(capped - expected).max() < ROUNDING * np.trace(expected)
    model.config.final_logit_softcapping = None
    plain = lm.fisher(model, tokenizer, SOME, sites=["final"], progress=False)["final"].matrix
    assert np.trace(plain) > 2 * np.trace(expected)


@pytest.mark.parametrize(("family", "site"), [("llama", MID), ("gpt2", "layers.0.mlp"), ("gemma2", MID)])
def test_the_sampled_matrix_agrees_with_the_jacobian(family, site):
    model, tokenizer = tiny_model(family, dtype=torch.float64), tiny_tokenizer()
    samples = 400
    found = lm.fisher(model, tokenizer, SOME, sites=[site], samples=samples, progress=False)[site]
    assert found.samples == samples
    expected = exact(model, tokens_of(tokenizer), site)
    # per text and draw, uᵀFu is estimated by a square; with Gaussian sums it has the relative variance 2
    error = 4 * np.sqrt(2 / samples)
    for direction in np.random.default_rng(0).normal(size=(8, len(expected))):
        priced = direction @ expected @ direction
        assert abs(direction @ found.matrix @ direction - priced) < error * priced
    # shifting each position alone, without attention to earlier ones, is another matrix
    alone = np.mean(
        [
            exact(model, [ids], site, [slice(t, t + 1)], shared=slice(t, t + 1))
            for ids in tokens_of(tokenizer)
            for t in range(len(ids))
        ],
        axis=0,
    )
    assert np.abs(alone - expected).max() > error * np.trace(expected) / len(expected)


def test_the_shift_at_the_last_norm_agrees_with_the_closed_form():
    model, tokenizer = tiny_model("llama", dtype=torch.float64), tiny_tokenizer()
    found = lm.fisher(model, tokenizer, SOME, sites=["final", "model.norm"], samples=400, progress=False)
    u = np.random.default_rng(1).normal(size=WIDTH)
    priced = u @ found["final"].matrix @ u
    assert abs(u @ found["model.norm"].matrix @ u - priced) < 4 * np.sqrt(2 / 400) * priced


def test_of_generations_the_positions_that_drew_their_tokens_count():
    model, tokenizer = tiny_model("llama", dtype=torch.float64), tiny_tokenizer()
    drawn = lm.generate(model, tokenizer, SOME[:2], n=2, max_new_tokens=4, progress=False)
    rows = [[*g.prompt_tokens, *g.tokens] for g in drawn]
    steps = [slice(len(g.prompt_tokens) - 1, len(row) - (not g.finished)) for g, row in zip(drawn, rows, strict=True)]
    found = lm.fisher(model, tokenizer, drawn, sites=["final"], progress=False)["final"]
    expected = exact(model, rows, "final", steps)
    assert found.count == sum(step.stop - step.start for step in steps)
    assert np.abs(found.matrix - expected).max() < ROUNDING * np.trace(expected)
    whole = exact(model, rows, "final")
    assert np.abs(found.matrix - whole).max() > 1e3 * ROUNDING * np.trace(expected)


def test_merged_matrices_are_those_of_all_texts():
    model, tokenizer = tiny_model("llama", dtype=torch.float64), tiny_tokenizer()
    options = {"sites": ["final", MID], "samples": 3, "progress": False}
    whole = lm.fisher(model, tokenizer, SOME, batch_size=2, **options)
    parts = [lm.fisher(model, tokenizer, part, batch_size=3, **options) for part in (SOME[:2], SOME[2:])]
    for site in whole:
        merged = parts[0][site] + parts[1][site]
        assert (merged.count, merged.samples) == (whole[site].count, whole[site].samples)
        assert np.abs(merged.matrix - whole[site].matrix).max() < ROUNDING * np.trace(whole[site].matrix)


def test_draws_follow_the_seed(model, tokenizer):
    options = {"sites": [MID], "samples": 2, "progress": False}
    first, same = (lm.fisher(model, tokenizer, SOME, **options)[MID].matrix for _ in range(2))
    other = lm.fisher(model, tokenizer, SOME, seed=1, **options)[MID].matrix
    assert (first == same).all() and (first != other).any()


def test_an_interrupted_fisher_goes_on_where_it_stopped(model, tokenizer, tmp_path):
    some = texts(20, seed=5)
    options = {"sites": ["final", MID], "samples": 2, "batch_size": 4, "progress": False}
    expected = lm.fisher(model, tokenizer, some, **options)
    passes = Interrupting(model, stop=3)
    with pytest.raises(KeyboardInterrupt):
        lm.fisher(model, tokenizer, some, work_dir=tmp_path, **options)
    passes.remove()
    assert not any(m._forward_hooks for m in model.modules())
    passes = Interrupting(model, stop=None)
    found = lm.fisher(model, tokenizer, some, work_dir=tmp_path, **options)
    assert passes.passes == 5 - 2
    for site in expected:
        np.testing.assert_allclose(found[site].matrix, expected[site].matrix, rtol=1e-9, atol=1e-12)
    for path in tmp_path.rglob("progress.safetensors"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.warns(CacheWarning, match="read anew"):
        lm.fisher(model, tokenizer, some, work_dir=tmp_path, **options)


@pytest.mark.parametrize(
    "other",
    [{"samples": 3}, {"seed": 1}, {"positions": "generated"}, {"sites": [MID, "final"]}, {"sites": ["layers.1"]}],
)
def test_other_settings_are_another_job(model, tokenizer, tmp_path, other):
    drawn = lm.generate(model, tokenizer, SOME[:2], n=2, max_new_tokens=4, progress=False)
    options = {"sites": [MID], "samples": 2, "progress": False}
    base = lm.fisher(model, tokenizer, drawn, work_dir=tmp_path, **options)
    expected = lm.fisher(model, tokenizer, drawn, **{**options, **other})
    found = lm.fisher(model, tokenizer, drawn, work_dir=tmp_path, **{**options, **other})
    assert list(found) == list(expected)
    assert all((found[site].matrix == expected[site].matrix).all() for site in expected)
    assert list(found) != list(base) or (found[MID].matrix != base[MID].matrix).any()


def test_the_model_is_left_as_it_was(model, tokenizer):
    before = {name: p.clone() for name, p in model.named_parameters()}
    model.train()
    lm.fisher(model, tokenizer, SOME, sites=[MID], samples=2, progress=False)
    assert model.training
    assert all(p.grad is None and (p == before[name]).all() for name, p in model.named_parameters())
    assert torch.is_grad_enabled()


def test_a_site_without_gradients_is_refused(model, tokenizer):
    block = model.model.layers[1]
    forward = block.forward
    block.forward = torch.no_grad()(forward)
    options = {"samples": 2, "progress": False}
    with pytest.raises(SiteError, match="No gradient reaches the final states"):
        lm.fisher(model, tokenizer, SOME, sites=[MID], **options)
    lm.fisher(model, tokenizer, SOME, sites=["final"], **options)
    block.forward = forward
    lm.fisher(model, tokenizer, SOME, sites=[MID], **options)
    with torch.inference_mode():
        frozen = tiny_model("llama")
    with pytest.raises(SiteError, match="No gradient reaches"):
        lm.fisher(frozen, tokenizer, SOME, sites=[MID], **options)


def test_inference_mode_around_the_call_does_not_matter(model, tokenizer):
    options = {"sites": [MID], "samples": 2, "progress": False}
    expected = lm.fisher(model, tokenizer, SOME, **options)[MID].matrix
    with torch.inference_mode():
        assert (lm.fisher(model, tokenizer, SOME, **options)[MID].matrix == expected).all()


def test_bad_input_is_refused(model, tokenizer):
    with pytest.raises(ModelError, match="causal language model"):
        lm.fisher(tiny_model("bert"), tokenizer, SOME, sites=["final"], progress=False)
    with pytest.raises(ParameterError, match="fisher got sites"):
        lm.fisher(model, tokenizer, SOME, sites="final", progress=False)
    with pytest.raises(ParameterError, match="samples is 0"):
        lm.fisher(model, tokenizer, SOME, sites=["final"], samples=0, progress=False)
    with pytest.raises(ParameterError, match="needs generations"):
        lm.fisher(model, tokenizer, SOME, sites=["final"], positions="generated", progress=False)
