"""The lookahead of PPLM and UDDIA against whole texts without a cache, and the head that it asks."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from repsurgery import lm
from repsurgery.errors import ModelError
from repsurgery.lm.sites.names import reading_model
from repsurgery.studies.toxicity.decoding import head
from repsurgery.studies.toxicity.decoding.cached_model import CachedModel
from repsurgery.studies.toxicity.decoding.head import LONGEST, Head
from repsurgery.studies.toxicity.decoding.lookahead import fused
from repsurgery.studies.toxicity.decoding.sampler import sample
from repsurgery.studies.toxicity.decoding.watched import Watched
from tests.lm.tiny_models import LAYERS, tiny_model
from tests.studies.toxicity.rivals.contexts import part_digests, rival
from tests.studies.toxicity.rivals.guided import ROWS, guided_context, some_head, started

FAMILIES = ["llama", "gpt2", "opt", "gpt_neox", "falcon", "qwen3"]
# a few rounding errors of two passes in float32
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def log_p_of_whole(model, row, logits):
    """Return the head's log P(target) of ``row`` and a soft token, from one pass without a cache."""
    embeddings = model.get_input_embeddings()
    soft = logits.softmax(-1) @ embeddings(torch.arange(len(logits)))
    whole = torch.cat([embeddings(torch.tensor([row])), soft[None, None]], dim=1)
    states = reading_model(model)(inputs_embeds=whole, use_cache=False).last_hidden_state
    return some_head().log_p(states.mean(dim=1))[0]


# Gemma's embeddings are scaled
@pytest.mark.parametrize("family", [*FAMILIES, "gemma2", "gemma3"])
def test_the_lookahead_is_that_of_the_whole_text(family):
    full = {"layer_types": ["full_attention"] * LAYERS} if family.startswith("gemma") else {}
    model, rows = tiny_model(family, **full), [list(row) for row in ROWS]
    with torch.no_grad():
        ahead, tokens = started(model)
        for new in ([4, 20, 33], [17, 4, 9]):
            clean = ahead.last(tokens, ahead.past)
            log_p = ahead.log_p(clean, clean.past)
            for i, row in enumerate(rows):
                logits = model(torch.tensor([row])).logits[0, -1]
                torch.testing.assert_close(clean.logits[i], logits, **CLOSE)
                torch.testing.assert_close(log_p[i], log_p_of_whole(model, row, logits), **CLOSE)
                row.append(new[i])
            ahead.accept(clean)
            tokens = torch.tensor(new)


def test_gradients_flow_through_the_soft_token_alone():
    ahead, tokens = started(tiny_model("llama"))
    keys = ahead.past[0][0].requires_grad_()
    seen = ahead.last(tokens, ahead.past)
    clean = seen.detached()

    def gradient(one):
        loss = ahead.log_p(one, clean.past).sum()
        return torch.autograd.grad(loss, keys, retain_graph=True, allow_unused=True)[0]

    through_logits = gradient(seen._replace(state=clean.state))
    assert through_logits.abs().max() > 0 and torch.equal(gradient(seen), through_logits)
    assert gradient(seen._replace(logits=clean.logits)) is None


@pytest.mark.parametrize("family", ["mistral", "gemma3"])
def test_a_model_with_sliding_windows_is_refused(family):
    with pytest.raises(ModelError, match="full attention in every block"), torch.no_grad():
        started(tiny_model(family))


def test_fusion_by_hand():
    p, u = torch.tensor([[0.8, 0.2]]), torch.tensor([[0.5, 0.5]])
    expected = torch.tensor([[0.8**0.9, 0.2**0.9]]) * 0.5**0.1
    torch.testing.assert_close(fused(p.log(), u.log(), 0.9).softmax(-1), expected / expected.sum())
    torch.testing.assert_close(fused(p.log(), u.log(), 0.0).softmax(-1), u)


def test_the_perplexity_is_the_base_s_own():
    model, ends = tiny_model("llama"), [2, 5, 9, 14]
    sampling = {"tokens": 6, "ends": ends, "padding": 0, "top_p": 1.0, "temperature": 1.0}
    decoder = Watched(CachedModel(model))
    with torch.no_grad():
        drawn = sample(decoder, ROWS, [b"a", b"b", b"c"], **sampling)
        found = decoder.perplexities(drawn, ends)
        stops = [next((i + 1 for i, token in enumerate(new) if token in ends), len(new)) for new in drawn]
        for row, new, stop, perplexity in zip(ROWS, drawn, stops, found, strict=True):
            log_p = model(torch.tensor([row + new[:stop]])).logits[0].log_softmax(-1)[len(row) - 1 : -1]
            nll = -log_p.gather(1, torch.tensor(new[:stop])[:, None]).mean()
            assert perplexity == pytest.approx(float(nll.exp()), rel=1e-4)
    assert min(stops) < max(stops)  # some text ended early, and what follows its end does not count


def test_the_head_is_the_logistic_regression_of_the_means(tmp_path):
    context = guided_context(tmp_path)
    part = rival("pplm texts=20", context).part("head")
    labels = (context.spec.source, context.spec.target)
    chosen = [text for label in labels for text in context.texts.fitted[label][:20]]
    how = {"pooling": "mean", "max_length": min(LONGEST, 64), "progress": False}
    means = lm.extract(context.model, context.tokenizer, chosen, **how)
    model = LogisticRegression(max_iter=1000).fit(means, np.repeat([0, 1], 20))
    expected = torch.from_numpy(model.predict_log_proba(means)[:, 1])
    found = Head.of(part).log_p(torch.from_numpy(means))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    assert part.header["texts"] == 40 and 0 <= part.header["held_out_auc"] <= 1


def test_texts_and_their_longest_length_decide_the_head(tmp_path, monkeypatch):
    context = guided_context(tmp_path)
    twenty = part_digests("pplm texts=20", context)["head"]
    assert part_digests("uddia texts=20", context)["head"] == twenty  # both methods share one head
    assert part_digests("pplm texts=21", context)["head"] != twenty
    monkeypatch.setattr(head, "LONGEST", 50)
    assert part_digests("pplm texts=20", context)["head"] != twenty


class Interrupt:
    """A hook that raises KeyboardInterrupt in the given pass of a model, and counts them.

    Its numbers are in slots, which do not belong to what the hook computes.
    """

    __slots__ = ("at", "passes")

    def __init__(self, at):
        self.at, self.passes = at, 0

    def __call__(self, *_):
        self.passes += 1
        if self.passes == self.at:
            raise KeyboardInterrupt


def test_an_interrupted_head_continues(tmp_path):
    context = guided_context(tmp_path)
    fresh = guided_context(tmp_path / "fresh")
    interrupt = Interrupt(at=2)  # 50 texts are read in two batches
    handle = context.model.model.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        rival("pplm", context).part("head")
    assert not list((tmp_path / "rivals").glob("*.safetensors"))
    handle.remove()
    counter = Interrupt(at=0)
    context.model.model.register_forward_pre_hook(counter)
    resumed = rival("pplm", context).part("head")
    assert counter.passes == 2  # the second half of the labelled texts, and the held-out ones
    np.testing.assert_array_equal(resumed.arrays["weight"], rival("pplm", fresh).part("head").arrays["weight"])


def test_without_held_out_texts_the_area_is_unknown(tmp_path):
    context = guided_context(tmp_path)
    context = replace(context, texts=replace(context.texts, held_out={label: [] for label in context.texts.fitted}))
    assert rival("pplm", context).part("head").header["held_out_auc"] is None
