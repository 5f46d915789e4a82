import pytest
import torch

from repsurgery.errors import ParameterError, TextError
from repsurgery.lm.texts import check_texts, context_length, encode, pad, pad_id, sorted_batches
from tests.lm.tiny_models import CONTEXT, tiny_model, tiny_tokenizer


def test_an_empty_text_is_named_by_its_index():
    with pytest.raises(TextError, match="empty text at index 1"):
        check_texts(["w1", "  \n"], caller="test")


def test_texts_are_a_list_of_strings():
    with pytest.raises(ParameterError, match="list of strings"):
        check_texts("w1 w2", caller="test")
    with pytest.raises(TextError, match="int as text 0"):
        check_texts([3], caller="test")
    with pytest.raises(TextError, match="at least one"):
        check_texts([], caller="test")


def test_a_text_beyond_the_context_names_the_remedy():
    model, tokenizer = tiny_model("gpt2"), tiny_tokenizer()
    long = " ".join(["w1"] * CONTEXT)
    with pytest.raises(TextError, match=f"{CONTEXT + 1} tokens at index 1.*max_length={CONTEXT}"):
        encode(model, tokenizer, ["w1", long], max_length=None, caller="test")
    cut = encode(model, tokenizer, ["w1", long], max_length=CONTEXT, caller="test")
    assert [len(row) for row in cut] == [2, CONTEXT]


def test_new_tokens_need_room_in_the_context():
    model, tokenizer = tiny_model("gpt2"), tiny_tokenizer()
    text = " ".join(["w1"] * (CONTEXT - 5))
    with pytest.raises(TextError, match="10 are for new tokens"):
        encode(model, tokenizer, [text], max_length=None, room=10, caller="test")


@pytest.mark.parametrize("max_length", [0, -1, CONTEXT + 1, 2.5])
def test_max_length_must_fit_the_context(max_length):
    with pytest.raises(ParameterError, match=f"1 to {CONTEXT} tokens"):
        encode(tiny_model("gpt2"), tiny_tokenizer(), ["w1"], max_length=max_length, caller="test")


def test_roberta_counts_positions_from_behind_its_padding():
    assert context_length(tiny_model("roberta"), tiny_tokenizer()) == CONTEXT - 1


def test_a_tokenizer_without_padding_is_served_and_left_alone():
    tokenizer = tiny_tokenizer(pad=None)
    assert tokenizer.pad_token_id is None
    model = tiny_model("gpt2", pad_token_id=None)
    assert pad_id(model, tokenizer) == tokenizer.eos_token_id
    assert tokenizer.pad_token_id is None


def test_padding_goes_where_it_is_asked_for():
    ids, mask = pad([[5, 6, 7], [8]], token=0, side="left")
    assert ids.tolist() == [[5, 6, 7], [0, 0, 8]]
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1]]
    ids, mask = pad([[5, 6, 7], [8]], token=0, side="right")
    assert ids.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert mask.dtype == torch.long


def test_batches_hold_every_index_once_longest_first():
    lengths = [3, 9, 1, 9, 4]
    batches = sorted_batches(lengths, 2)
    assert batches == [[1, 3], [4, 0], [2]]
    with pytest.raises(ParameterError, match="batch_size"):
        sorted_batches(lengths, 0)
