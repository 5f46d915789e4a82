"""UDDIA against its definition: one step of Adam on biases without a cache, tries by hand, and limits."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from repsurgery.datasets import Prompts
from repsurgery.errors import DataError, ParameterError, SiteError
from repsurgery.lm.generate.sampling import sample_key
from repsurgery.lm.sites.names import reading_model
from repsurgery.studies.toxicity.decoding.biases import BiasTuned, biased_sites
from repsurgery.studies.toxicity.decoding.lookahead import Lookahead, fused
from tests.lm.tiny_models import tiny_model
from tests.studies.toxicity.rivals.contexts import PROMPTS, SEEDS, base, part_digests, rival, rows
from tests.studies.toxicity.rivals.guided import NEXT, ROWS, along, guided_context, padded, some_head, started

FAMILIES = ["llama", "gpt2"]


def tuned(model, *, lr=0.06, layers=1, fusion=0.9, head=None):
    return BiasTuned(Lookahead(model, head or some_head()), biased_sites(model, layers), lr=lr, fusion=fusion)


@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_step_the_texts_are_those_of_the_base(family, tmp_path):
    context = guided_context(tmp_path, family)
    untouched = rows(base(context))
    assert rows(rival("uddia lr=0 texts=20", context)) == untouched
    assert rows(rival("uddia lr=0.5 texts=20", context)) != untouched


def by_definition(model, row, *, lr, layers, fusion):
    """Return the fused logits after ``row``, computed on the whole text, with biases at its last position alone."""
    ids, E, vectors = torch.tensor([row]), model.get_input_embeddings().weight.detach(), {}
    sites, logits = biased_sites(model, layers), model.get_output_embeddings()

    def adding(path):
        def hook(module, args, output):
            bias = vectors.setdefault(path, torch.zeros(output.shape[-1], requires_grad=True))
            return torch.cat([output[:, :-1], output[:, -1:] + bias], dim=1)

        return hook

    def states(embeddings, *, biased):
        handles = [site.module.register_forward_hook(adding(site.path)) for site in sites if biased]
        found = reading_model(model)(inputs_embeds=embeddings, use_cache=False).last_hidden_state
        for handle in handles:
            handle.remove()
        return found

    clean = states(E[ids], biased=False).detach()
    p = logits(states(E[ids], biased=True)[:, -1]).softmax(-1)
    soft = states(torch.cat([E[ids], (p @ E)[:, None]], dim=1), biased=False)[:, -1:]
    loss = -some_head().log_p(torch.cat([clean, soft], dim=1).mean(dim=1)).sum()
    gradients = torch.autograd.grad(loss, list(vectors.values()))
    vectors = {path: -lr * g.sign() for path, g in zip(vectors, gradients, strict=True)}
    with torch.no_grad():
        return fused(logits(states(E[ids], biased=True)[:, -1]), logits(clean[:, -1]), fusion)[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_with_a_cache_are_the_definition_without_one(family):
    model = tiny_model(family)
    found = along(tuned(model, layers=2))
    for i, row in enumerate(ROWS):
        for step, logits in enumerate(found):
            text = [*row, *NEXT[:step, i].tolist()]
            expected = by_definition(model, text, lr=0.06, layers=2, fusion=0.9)
            # a bias whose gradient is a rounding error may move the other way
            torch.testing.assert_close(logits[i], expected, rtol=1e-3, atol=1e-3)
            with torch.no_grad():
                untouched = model(torch.tensor([text])).logits[0, -1].log_softmax(-1)
            assert (logits[i] - untouched).abs().max() > 0.05


def test_each_bias_moves_by_the_learning_rate():
    model = tiny_model("gpt2")
    decoder = tuned(model, lr=0.06, layers=1)
    with torch.no_grad():
        _, biases = decoder.tuned(decoder._ahead.start(*padded([[1, 5]])))
    paths = {site.path for site in biased_sites(model, 1)}
    assert (
        set(biases.values)
        == paths
        == {"transformer.ln_f"}
        | {f"transformer.h.1.{path}" for path in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")}
    )
    final = biases.values["transformer.ln_f"]
    assert final.shape == (1, 1, 16)
    torch.testing.assert_close(final.abs(), torch.full_like(final, 0.06), rtol=1e-3, atol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_larger_the_step_the_surer_the_head(family):
    model = tiny_model(family)
    for way in (1, -1):
        seen = []
        for lr in (0.0, 0.0005, 0.001, 0.002):
            ahead, tokens = started(model)
            decoder = tuned(model, lr=lr, layers=2, head=some_head(way))
            with torch.no_grad():
                decoder._ahead.start(*padded())
                clean, biases = decoder.tuned(tokens)
                with biases.added():
                    changed = ahead.last(tokens, ahead.past)
                seen.append(ahead.log_p(changed._replace(state=clean.state), clean.past))
        assert all((way * (later - sooner) > 0).all() for sooner, later in pairwise(seen))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_writes_what_single_rows_write(family, tmp_path):
    context = guided_context(tmp_path, family)
    one = rival("uddia lr=0.2 texts=20 layers=2 fewer=1", context)
    assert rows(one) == [[rows(one, [prompt], [seed])[0][0] for seed in SEEDS] for prompt in PROMPTS]


class Counted:
    """Notes the rows and blocks of every try of a rival."""

    def __init__(self, one):
        self.one, self.tries, self.found = one, [], []
        self.inner, one._tries = one._tries, self

    def __call__(self, some, keys, layers):
        drawn = self.inner(some, keys, layers)
        self.tries.append((len(some), layers))
        self.found.append(dict(zip(keys, drawn, strict=True)))
        return drawn


def test_only_rows_above_the_threshold_are_written_again(tmp_path):
    context = guided_context(tmp_path)
    line = "uddia lr=0.2 texts=20 layers=2 fewer=1"
    first = rows(rival(f"{line} threshold=1e9", context))
    watched = Counted(rival(line, context))
    texts = rows(watched.one)
    (everything, two), (some, one) = watched.tries
    assert (everything, two, one) == (12, 2, 1) and 0 < some < 12
    kept = sum(a == b for row, other in zip(texts, first, strict=True) for a, b in zip(row, other, strict=True))
    assert 12 - some <= kept < 12
    threshold = float(watched.one.part("threshold").arrays["threshold"][0])
    assert some == sum(perplexity > threshold for perplexity, _ in watched.found[0].values())
    # nothing counts after the end token 2
    steps = [
        sum(tokens.index(2) + 1 if 2 in tokens else len(tokens) for _, tokens in drawn.values())
        for drawn in watched.found
    ]
    assert watched.one.cost.extra_passes == 2 * steps[0] + 3 * steps[1]


def test_the_best_try_is_kept(tmp_path):
    watched = Counted(rival("uddia lr=0.2 texts=20 layers=2 fewer=1 threshold=1", guided_context(tmp_path)))
    texts = [tokens for row in rows(watched.one) for tokens in row]
    assert watched.tries == [(12, 2), (12, 1)]  # no perplexity is 1, so every text is written as often as possible
    tries = [sorted(drawn.values()) for drawn in watched.found]
    assert tries[0] != tries[1]
    best = [min(pair)[1] for pair in zip(*(drawn.values() for drawn in watched.found), strict=True)]
    assert sorted(texts) == sorted(tuple(t[: t.index(2)] if 2 in t else t) for t in best)
    assert best != [tokens for _, tokens in watched.found[0].values()]


def test_a_try_has_the_perplexity_of_the_unchanged_model(tmp_path):
    context = guided_context(tmp_path)
    one = rival("uddia lr=0.5 texts=20", context)
    prompts = one.encode(PROMPTS)
    with torch.no_grad():
        drawn = one._tries(prompts, [b"a", b"b", b"c"], 2)
        for prompt, (perplexity, tokens) in zip(prompts, drawn, strict=True):
            new = tokens[: tokens.index(2) + 1] if 2 in tokens else tokens
            log_u = context.model(torch.tensor([[*prompt, *new]])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
            nll = -log_u.gather(1, torch.tensor(new)[:, None]).mean()
            assert perplexity == pytest.approx(float(nll.exp()), rel=1e-3)


def test_every_try_has_its_own_noise_and_the_first_that_of_the_table(tmp_path):
    watched = Counted(rival("uddia lr=0.2 texts=20 layers=2 fewer=1 threshold=1", guided_context(tmp_path)))
    rows(watched.one)
    first, second = map(set, watched.found)
    assert first == {sample_key(0, prompt, 0, seed) for prompt in PROMPTS for seed in SEEDS}
    assert len(first) == len(second) == 12 and first.isdisjoint(second)


@pytest.mark.parametrize("change", [{"tokens": 3}, {"top_p": 0.5}, {"temperature": 0.3}])
def test_the_sampling_decides_the_threshold_and_not_the_head(change, tmp_path):
    usual = part_digests("uddia texts=20", guided_context(tmp_path))
    other = part_digests("uddia texts=20", guided_context(tmp_path, **change))
    assert other["threshold"] != usual["threshold"] and other["head"] == usual["head"]
    assert part_digests("uddia texts=20 lr=1", guided_context(tmp_path)) == usual


def test_the_threshold_is_a_percentile_of_the_base_s_own_texts(tmp_path):
    context = guided_context(tmp_path)
    one = rival("uddia texts=20", context)
    threshold = float(one.part("threshold").arrays["threshold"][0])
    found = Counted(rival("uddia lr=0 texts=20", context))
    rows(found.one, list(context.texts.training.texts), [0])
    perplexities = torch.tensor([perplexity for perplexity, _ in found.found[0].values()])
    assert threshold == pytest.approx(float(perplexities.quantile(0.6)), rel=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("lr=-1", "lr=-1; it must be at least 0"),
        ("lr=inf", "lr=inf; it must be finite"),
        ("fewer=0", "at least 1"),
        ("fusion=1.5", r"lie in \[0, 1\]"),
    ],
)
def test_options_outside_their_range_are_refused(options, message, tmp_path):
    with pytest.raises(ParameterError, match=message):
        rival(f"uddia {options}", guided_context(tmp_path))


def test_more_layers_than_the_model_has_are_refused(tmp_path):
    for layers in (3, 99):
        with pytest.raises(ParameterError, match=rf"layers is {layers}; .*1 to 2"):
            rival(f"uddia layers={layers} texts=20", guided_context(tmp_path))
    assert rival("uddia layers=2 texts=20", guided_context(tmp_path))


def test_a_threshold_needs_prompts(tmp_path):
    context = guided_context(tmp_path)
    none = replace(context.texts, training=Prompts((), name="none", source="tests", licence="none"))
    with pytest.raises(DataError, match="uddia threshold=30"):
        rows(rival("uddia texts=20", replace(context, texts=none)))


def test_a_block_without_linear_layers_is_named():
    model = tiny_model("llama")
    model.model.layers[1] = torch.nn.Identity()
    with pytest.raises(SiteError, match=r"layers\.1 .*has no linear layer"):
        biased_sites(model, 1)
