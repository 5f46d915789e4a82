import numpy as np
import pytest
import torch

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import ParameterError, TextError
from tests.lm.tiny_models import WIDTH
from tests.lm.tools import DEPTH, assert_close, random_map

PROMPTS = ["w1 w2 w3", "w4", "w5 w6"]
CONTINUATIONS = [" w7 w8", " w9", " w10 w11 w12 w13"]


def log_p(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].log_softmax(dim=-1).numpy()


def test_log_likelihoods_are_sums_of_next_token_probabilities(model, tokenizer):
    found = lm.log_likelihoods(model, tokenizer, PROMPTS, CONTINUATIONS, batch_size=2, progress=False)
    for record, prompt, continuation in zip(found, PROMPTS, CONTINUATIONS, strict=True):
        tokens = tokenizer(prompt + continuation)["input_ids"]
        start = len(tokenizer(prompt)["input_ids"])
        table = log_p(model, tokens)
        expected = [table[i - 1, tokens[i]] for i in range(start, len(tokens))]
        assert record.tokens == tuple(tokens[start:])
        assert_close(record.values, expected, rtol=DEPTH)
        assert record.total == pytest.approx(sum(record.values))


def test_a_continuation_costs_what_its_parts_cost(model, tokenizer):
    whole = lm.log_likelihoods(model, tokenizer, ["w1"], [" w2 w3"], progress=False)[0]
    first = lm.log_likelihoods(model, tokenizer, ["w1"], [" w2"], progress=False)[0]
    second = lm.log_likelihoods(model, tokenizer, ["w1 w2"], [" w3"], progress=False)[0]
    assert whole.total == pytest.approx(first.total + second.total, rel=DEPTH)


def test_steering_changes_log_likelihoods_as_steer_does(model, tokenizer):
    m = random_map()
    found = lm.log_likelihoods(model, tokenizer, PROMPTS, CONTINUATIONS, steering=m, progress=False)
    with lm.steer(model, {"final": m}):
        expected = lm.log_likelihoods(model, tokenizer, PROMPTS, CONTINUATIONS, progress=False)
    assert found == expected
    assert found != lm.log_likelihoods(model, tokenizer, PROMPTS, CONTINUATIONS, progress=False)


def test_a_token_that_merges_over_the_border_belongs_to_the_continuation(model, tokenizer):
    # "w1" and "w12": the prompt's last token is not the joint text's
    found = lm.log_likelihoods(model, tokenizer, ["w5 w1"], ["2 w7"], progress=False)[0]
    assert found.tokens == tuple(tokenizer("w12 w7")["input_ids"][1:])


def test_the_divergence_is_that_of_the_two_distributions(model, tokenizer):
    m = random_map()
    found = lm.kl_divergence(model, tokenizer, PROMPTS, m, batch_size=2, progress=False)
    for record, text in zip(found, PROMPTS, strict=True):
        tokens = tokenizer(text)["input_ids"]
        base = log_p(model, tokens).astype(float)
        with lm.steer(model, {"final": m}):
            moved = log_p(model, tokens).astype(float)
        assert_close(record.values, (np.exp(moved) * (moved - base)).sum(axis=1), rtol=DEPTH)
        assert record.mean > 1e3 * DEPTH
        assert len(record.values) == len(record.tokens) == len(tokens)


def test_no_steering_no_divergence(model, tokenizer):
    for nothing in (rs.Identity(WIDTH), rs.Translation(np.zeros(WIDTH))):
        found = lm.kl_divergence(model, tokenizer, PROMPTS, nothing, progress=False)
        assert all(value == 0 for record in found for value in record.values)


def test_the_divergence_grows_with_the_strength(model, tokenizer):
    means = [
        np.mean([r.mean for r in lm.kl_divergence(model, tokenizer, PROMPTS, random_map(), strength=t, progress=False)])
        for t in (0.1, 0.5, 1.0)
    ]
    assert means == sorted(means) and means[0] > 0


def test_bad_input_is_refused(model, tokenizer):
    with pytest.raises(ParameterError, match="one for each"):
        lm.log_likelihoods(model, tokenizer, PROMPTS, CONTINUATIONS[:2], progress=False)
    with pytest.raises(TextError, match="empty text"):
        lm.log_likelihoods(model, tokenizer, PROMPTS, [" "] * 3, progress=False)
    with pytest.raises(ParameterError, match="steering=None"):
        lm.kl_divergence(model, tokenizer, PROMPTS, None, progress=False)


def test_the_divergence_along_a_generation_is_that_of_its_steps(model, tokenizer):
    steering = {"final": random_map()}
    generations = lm.generate(model, tokenizer, PROMPTS, n=2, max_new_tokens=4, progress=False)
    found = lm.kl_divergence(model, tokenizer, generations, steering, progress=False)
    for record, g in zip(found, generations, strict=True):
        assert len(record.values) == len(g.tokens) + g.finished and record.tokens == g.tokens
        # every position of prompt and text, of which those that wrote the text are the last but perhaps one
        (whole,) = lm.kl_divergence(model, tokenizer, [g.prompt + g.text], steering, progress=False)
        start = len(tokenizer(g.prompt)["input_ids"]) - 1
        if list(whole.tokens) == [*tokenizer(g.prompt)["input_ids"], *g.tokens]:
            assert_close(record.values, whole.values[start : start + len(record.values)], rtol=DEPTH)
    assert any(value > 1e-4 for record in found for value in record.values)
