import numpy as np
import pytest
import torch

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import ModelError, ParameterError
from repsurgery.lm.generate.decode_pass import is_plain_cache, plain_cache
from tests.lm.test_steer_rows import choices, dense, shift
from tests.lm.tiny_models import CONTEXT, DECODERS, WIDTH, tiny_model, tiny_tokenizer

PROMPTS = [[1, 5, 6, 7], [1, 8], [1, 9, 10, 11, 12, 13, 14, 15], [1, 8], [1, 6, 7], [1, 5, 6, 7]]
FAMILIES = [family for family in DECODERS if family != "opt_350m"]


def alone(model, tokenizer, prompt, steering, tokens):
    """Return the logits of one text, after its prompt and after each of ``tokens``."""
    with lm.RowDecoder(model, tokenizer) as decoder:
        rows = [decoder.join([prompt], [steering])[0]]
        return [*rows, *(decoder.step([token])[0] for token in tokens)]


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_join_and_leave(family):
    model, tokenizer = tiny_model(family), tiny_tokenizer()
    steerings = choices()
    rng = np.random.default_rng(0)
    words = rng.integers(4, 40, size=(len(PROMPTS), 12)).tolist()
    expected = [alone(model, tokenizer, p, s, w) for p, s, w in zip(PROMPTS, steerings, words, strict=True)]
    # the rows that join before each step, and those that leave after it
    joins = {0: [0, 1], 2: [2], 3: [3, 4], 7: [5]}
    leaves = {5: [0, 3], 6: [2], 9: [4]}
    rows, steps = [], dict.fromkeys(range(len(PROMPTS)), 0)

    def check(row, logits):
        torch.testing.assert_close(logits, expected[row][steps[row]], rtol=2e-4, atol=2e-4)

    with lm.RowDecoder(model, tokenizer) as decoder:
        for time in range(11):
            if new := joins.get(time):
                for row, logits in zip(
                    new, decoder.join([PROMPTS[r] for r in new], [steerings[r] for r in new]), strict=True
                ):
                    check(row, logits)
                rows += new
            logits = decoder.step([words[row][steps[row]] for row in rows])
            for i, row in enumerate(rows):
                steps[row] += 1
                check(row, logits[i])
            if gone := leaves.get(time):
                decoder.leave([rows.index(row) for row in gone])
                rows = [row for row in rows if row not in gone]
            assert len(decoder) == len(rows)
    assert min(steps.values()) >= 3


@pytest.mark.parametrize("family", ["mistral", "gemma2", "gemma3"])
def test_sliding_windows_keep_every_position_and_compute_the_same(family):
    model, tokenizer = tiny_model(family), tiny_tokenizer()
    tokens = list(range(4, 24))
    logits = alone(model, tokenizer, tokens[:8], None, tokens[8:])
    with torch.no_grad():
        whole = model(torch.tensor([tokens])).logits[0, 7:]
    torch.testing.assert_close(torch.stack(logits), whole, rtol=2e-4, atol=2e-4)


def test_generation_in_a_growing_batch_is_that_of_generate(model, tokenizer):
    prompt = "w1 w2 w3"
    (expected,) = lm.generate(
        model, tokenizer, [prompt], steering={"final": shift(0)}, n=1, top_p=1e-9, max_new_tokens=8, progress=False
    )
    tokens = []
    with lm.RowDecoder(model, tokenizer) as decoder:
        logits = decoder.join([PROMPTS[2], tokenizer(prompt)["input_ids"]], [dense(1), shift(0)])
        for _ in range(8):
            drawn = logits.argmax(dim=1).tolist()
            tokens.append(drawn[1])
            logits = decoder.step(drawn)
    assert tuple(tokens[: len(expected.tokens)]) == expected.tokens


def test_equal_prompts_are_read_once(model, tokenizer):
    read = []
    handle = model.model.register_forward_pre_hook(
        lambda module, args, kwargs: read.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    with lm.RowDecoder(model, tokenizer) as decoder:
        steering = shift(0)
        logits = decoder.join([PROMPTS[0]] * 5, [None, steering, None, steering, dense(1)])
        assert read == [(3, 4)]
        decoder.step([4] * 5)
    handle.remove()
    assert torch.equal(logits[0], logits[2]) and torch.equal(logits[1], logits[3])
    assert not torch.allclose(logits[0], logits[1]) and not torch.allclose(logits[1], logits[4])


def test_padding_that_nobody_needs_is_dropped(model, tokenizer):
    with lm.RowDecoder(model, tokenizer) as decoder:
        decoder.join([PROMPTS[2], PROMPTS[1]], [None, None])
        decoder.leave([0])
        assert decoder._mask.shape == (1, 2)
        assert decoder._cache.get_seq_length() == 2
        decoder.leave([0])
        assert len(decoder) == 0 and decoder._cache is None


def test_a_failed_row_is_noted_and_the_others_go_on(model, tokenizer):
    huge = rs.Translation(np.full(WIDTH, 1e39))
    base = alone(model, tokenizer, PROMPTS[1], None, [])[0]
    with lm.RowDecoder(model, tokenizer) as decoder:
        decoder.join([PROMPTS[0]], [shift(0)])
        logits = decoder.join([PROMPTS[1]] * 3, [huge, None, huge])
        assert set(decoder.failures) == {1, 3}
        torch.testing.assert_close(logits[1], base)
        decoder.leave([1, 3])
        after = decoder.step([4, 5])
        assert not decoder.failures
    torch.testing.assert_close(after[0], alone(model, tokenizer, PROMPTS[0], shift(0), [4])[1], rtol=1e-4, atol=1e-4)


def test_a_failed_pass_leaves_the_batch(model, tokenizer):
    class FailingError(Exception):
        pass

    def fail(*args):
        raise FailingError

    expected = alone(model, tokenizer, PROMPTS[0], shift(0), [4, 5])
    with lm.RowDecoder(model, tokenizer) as decoder:
        decoder.join([PROMPTS[0]], [shift(0)])
        for call in (lambda: decoder.join([PROMPTS[1]], [None]), lambda: decoder.step([4])):
            handle = model.model.layers[1].register_forward_hook(fail)
            with pytest.raises(FailingError):
                call()
            handle.remove()
        assert len(decoder) == 1
        for token, logits in zip([4, 5], expected[1:], strict=True):
            torch.testing.assert_close(decoder.step([token])[0], logits)


def test_wrong_calls_are_refused(model, tokenizer):
    with lm.RowDecoder(model, tokenizer) as decoder:
        for prompts, steerings in (([], []), ([[1, 2]], []), ([[]], [None])):
            with pytest.raises(ParameterError, match="one steering for each prompt"):
                decoder.join(prompts, steerings)
        decoder.join([[1, 2]], [None])
        with pytest.raises(ParameterError, match="1 rows"):
            decoder.step([1, 2])
        for row in (-1, 1):
            with pytest.raises(ParameterError, match="rows 0 to 0"):
                decoder.leave([row])
        with pytest.raises(ParameterError, match="context holds"):
            decoder.join([[4] * CONTEXT], [None])
        with pytest.raises(ParameterError, match="one value for each token"):
            decoder.join([[4, 5]], [None], turns=[[True]])
        decoder.leave([0])
        with pytest.raises(ParameterError, match="0 rows"):
            decoder.step([])


def test_other_passes_of_the_thread_are_not_steered(model, tokenizer):
    ids = torch.tensor([[1, 5, 6]])
    with torch.no_grad():
        before = model(ids).logits
        with lm.RowDecoder(model, tokenizer) as decoder:
            decoder.join([[1, 5]], [{"layers.0": dense(1)}])
            assert torch.equal(model(ids).logits, before)
            (one,) = lm.generate(model, tokenizer, ["w1 w2"], n=1, max_new_tokens=3, progress=False)
    (other,) = lm.generate(model, tokenizer, ["w1 w2"], n=1, max_new_tokens=3, progress=False)
    assert one == other


def test_equal_tokens_with_other_turns_are_read_apart(model, tokenizer):
    choice = lm.Choice({"layers.0": dense(1)}, positions="assistant")
    prompt = [1, 5, 6, 7]
    masks = [[False, True, True, False], [False] * 4]
    with lm.RowDecoder(model, tokenizer) as decoder:
        both = decoder.join([prompt] * 2, [choice] * 2, turns=masks)
    for i, mask in enumerate(masks):
        with lm.RowDecoder(model, tokenizer) as decoder:
            torch.testing.assert_close(decoder.join([prompt], [choice], turns=[mask])[0], both[i])
    assert not torch.allclose(both[0], both[1])


def test_an_encoder_is_refused(tokenizer):
    with pytest.raises(ModelError, match=r"lm\.generate"):
        lm.RowDecoder(tiny_model("bert"), tokenizer)


def test_plain_caches(model):
    assert is_plain_cache(plain_cache(model))
    model.config.layer_types = ["full_attention", "linear_attention"]
    assert plain_cache(model) is None


LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "original_max_position_embeddings": 16,
    "factor": 4.0,
    "rope_theta": 1e4,
}


def test_rotary_embeddings_that_depend_on_the_batch_are_refused():
    model, tokenizer = tiny_model("llama", rope_parameters=LONG), tiny_tokenizer()
    with pytest.raises(ModelError, match=r"more than 16 tokens.*Set model_max_length of the tokenizer .* to 16"):
        lm.RowDecoder(model, tokenizer)
    # the remedy of the message: texts of at most that length do not depend on their batch
    tokenizer.model_max_length = 16
    beside_a_longer_row(model, tokenizer, length=15)
    # counter-check: the embeddings of a batch do depend on its longest text
    ids = torch.tensor([[1, 5, 6, 7], [1, 8, 9, 10]])
    far = torch.tensor([[0, 1, 2, 3], [20, 21, 22, 23]])
    with torch.no_grad():
        apart, together = model(ids[:1], position_ids=far[:1]).logits[0], model(ids, position_ids=far).logits[0]
    assert (apart - together).abs().max() > 1e-3


def test_rotary_embeddings_that_change_beyond_the_context_only_are_accepted():
    dynamic = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}
    beside_a_longer_row(tiny_model("llama", rope_parameters=dynamic), tiny_tokenizer(), length=CONTEXT - 1)


def beside_a_longer_row(model, tokenizer, *, length):
    expected = alone(model, tokenizer, [1, 5, 6, 7], None, [8, 9])
    with lm.RowDecoder(model, tokenizer) as decoder:
        logits = decoder.join([[1, 5, 6, 7], [4] * (length - 2)], [None] * 2)
        found = [logits[0], *(decoder.step([token, 4])[0] for token in (8, 9))]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-4, atol=2e-4)
