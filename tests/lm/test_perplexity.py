import math

import numpy as np
import pytest
import torch

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import ModelError, NonFiniteError, ParameterError, ShapeError, SiteError, TextError
from repsurgery.lm.score import output_layer
from repsurgery.lm.score.windows import document_tokens, prefix_token, rolling_windows
from repsurgery.lm.steer.steer import optional_steer
from tests.lm.tiny_models import DECODERS, WIDTH, tiny_model, tiny_tokenizer
from tests.lm.tools import EPS32, gated, random_map, split_gate, width_at

DOCUMENTS = [
    " ".join(f"w{(7 * i + i * i) % 40}" for i in range(23)),
    "w3 w1 w4",
    " ".join(f"w{(3 * i) % 40}" for i in range(14)),
]
AGREEMENT = 8 * EPS32
"""Relative error of a sum of log-likelihoods, each some units in the last place off, in either direction."""


def one_by_one(model, tokenizer, text, *, max_length):
    """Predict each token of one document by the windows of the harness, spelled out; the whole model, one window."""
    tokens = tokenizer.encode(text)
    total = 0.0
    for start in range(0, len(tokens), max_length):
        end = min(start + max_length, len(tokens))
        before = [tokenizer.bos_token_id, *tokens][max(0, end - max_length) : end]
        with torch.no_grad():
            log_p = model(torch.tensor([before])).logits[0].double().log_softmax(dim=-1)
        for back in range(1, end - start + 1):
            total += float(log_p[-back, tokens[end - back]])
    return total


def some_gate(model, tokenizer, site="final"):
    ids = torch.tensor([tokenizer.encode(DOCUMENTS[0])])
    return split_gate(model, site, ids, torch.ones_like(ids))


def steerings(model, tokenizer):
    m = random_map()
    return {
        "base": None,
        "all": m,
        "gated": {"final": gated(m, some_gate(model, tokenizer))},
        "inner": {"layers.0": m},
        "inner gated": {"layers.1": gated(m, some_gate(model, tokenizer, "layers.1"))},
        "two": {"layers.0": rs.Translation(np.full(WIDTH, 0.2)), "final": m},
    }


@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_shared_pass_equals_a_pass_for_each(model, tokenizer, batch_size):
    chosen = steerings(model, tokenizer)
    found = lm.document_perplexity(
        model, tokenizer, DOCUMENTS, chosen, max_length=8, batch_size=batch_size, progress=False
    )
    assert list(found) == list(chosen)
    for name, steering in chosen.items():
        with optional_steer(model, steering, strength=1.0, positions="all"):
            expected = [one_by_one(model, tokenizer, text, max_length=8) for text in DOCUMENTS]
        assert found[name].log_likelihoods == pytest.approx(expected, rel=AGREEMENT)
    totals = [record.log_likelihood for record in found.values()]
    # every steering changes the figure, and no two alike
    assert np.diff(sorted(totals)).min() > 1e3 * AGREEMENT * max(map(abs, totals))


def test_the_final_states_are_computed_once(model, tokenizer):
    chosen = {"base": None, "a": random_map(), "b": gated(random_map(), some_gate(model, tokenizer))}
    passes = []
    handle = model.model.register_forward_hook(lambda *_: passes.append(1))
    lm.document_perplexity(model, tokenizer, DOCUMENTS[:1], chosen, max_length=8, progress=False)
    handle.remove()
    assert len(passes) == math.ceil(24 / 8)


@pytest.mark.parametrize("family", DECODERS)
def test_the_output_layer_is_the_models_own(family, tokenizer, monkeypatch):
    model = tiny_model(family)
    monkeypatch.setattr(output_layer, "LOGITS", 5 * model.config.vocab_size)  # several pieces, the last one short
    m = random_map(width_at(model, "final"))
    found = lm.document_perplexity(
        model, tokenizer, DOCUMENTS, {"base": None, "m": m}, max_length=12, batch_size=2, progress=False
    )
    expected = [one_by_one(model, tokenizer, text, max_length=12) for text in DOCUMENTS]
    assert found["base"].log_likelihoods == pytest.approx(expected, rel=AGREEMENT)
    with lm.steer(model, {"final": m}):
        expected = [one_by_one(model, tokenizer, text, max_length=12) for text in DOCUMENTS]
    assert found["m"].log_likelihoods == pytest.approx(expected, rel=AGREEMENT)


def test_windows_predict_every_token_once():
    tokens = list(range(100, 120))
    for length in range(1, 25):
        windows = rolling_windows(tokens, 7, length)
        assert [token for window in windows for token in window.targets] == tokens
        assert windows[0].inputs[0] == 7
        for window in windows:
            assert len(window.targets) <= len(window.inputs) <= length
            assert window.inputs[1:][::-1][: len(window.targets) - 1] == window.targets[:-1][::-1]
        assert all(len(window.inputs) == length for window in windows[1:])


def test_the_prefix_is_the_beginning_else_the_end(tokenizer):
    assert prefix_token(tokenizer) == tokenizer.bos_token_id
    tokenizer.bos_token = None
    assert prefix_token(tokenizer) == tokenizer.eos_token_id
    tokenizer.eos_token = None
    with pytest.raises(ModelError, match=r"Set tokenizer\.bos_token"):
        prefix_token(tokenizer)


def test_a_text_that_brings_its_beginning_gets_no_second_one(tokenizer):
    assert document_tokens(tokenizer, "w1 w2", 1) == tokenizer.encode("w1 w2")
    assert document_tokens(tokenizer, "<s> w1 w2", 1) == tokenizer.encode("w1 w2")


def test_perplexities_follow_from_the_counts(model, tokenizer):
    found = lm.document_perplexity(model, tokenizer, DOCUMENTS, {"base": None}, words=50, bytes=90, progress=False)
    record = found["base"]
    assert (record.tokens, record.words, record.bytes) == (24 + 4 + 15, 50, 90)
    assert record.log_likelihood == pytest.approx(sum(record.log_likelihoods))
    assert record.word_perplexity == pytest.approx(math.exp(-record.log_likelihood / 50))
    assert record.byte_perplexity == pytest.approx(math.exp(-record.log_likelihood / 90))
    assert 2**record.bits_per_byte == pytest.approx(record.byte_perplexity)
    counted = lm.document_perplexity(model, tokenizer, DOCUMENTS, {"base": None}, progress=False)["base"]
    assert (counted.words, counted.bytes) == (23 + 3 + 14, sum(map(len, DOCUMENTS)))
    assert lm.DocumentPerplexity((-1e5,), 1, 1, 1).word_perplexity == math.inf


def test_the_model_is_left_as_it_was(model, tokenizer):
    model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    lm.document_perplexity(model, tokenizer, DOCUMENTS, steerings(model, tokenizer), max_length=8, progress=False)
    assert model.training and not model.model.norm._forward_hooks
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_bad_input_is_refused_before_anything_runs(model, tokenizer):
    def measure(documents=DOCUMENTS, chosen=None, **options):
        chosen = {"base": None} if chosen is None else chosen
        return lm.document_perplexity(model, tokenizer, documents, chosen, progress=False, **options)

    handle = model.register_forward_pre_hook(lambda *_: pytest.fail("the model ran"))
    with pytest.raises(TextError, match="at least one"):
        measure([])
    with pytest.raises(TextError, match="empty text at index 1"):
        measure(["w1", " "])
    with pytest.raises(ParameterError, match="at least one"):
        measure(chosen={})
    with pytest.raises(ParameterError, match="names no site"):
        measure(chosen={"nothing": {}})
    with pytest.raises(SiteError, match=r"layers\.9"):
        measure(chosen={"far": {"layers.9": random_map()}})
    with pytest.raises(ShapeError, match="has 5 features"):
        measure(chosen={"narrow": random_map(5)})
    with pytest.raises(ParameterError, match="1 to 64 tokens"):
        measure(max_length=65)
    with pytest.raises(ParameterError, match="1 to 64 tokens"):
        measure(max_length=0)
    with pytest.raises(ParameterError, match="words is 0"):
        measure(words=0)
    handle.remove()
    with pytest.raises(ModelError, match="causal language model"):
        lm.document_perplexity(model.model, tokenizer, DOCUMENTS, {"base": None}, progress=False)


def test_logits_beyond_the_number_range_are_refused(tokenizer):
    model = tiny_model("llama", dtype=torch.float16)
    far = rs.Translation(np.full(WIDTH, 6e4))
    with pytest.raises(NonFiniteError, match=r"'far'.*wider dtype"):
        lm.document_perplexity(model, tiny_tokenizer(), DOCUMENTS, {"far": far}, progress=False)
