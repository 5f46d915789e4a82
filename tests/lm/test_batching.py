import pytest
import torch

from repsurgery.errors import BatchHalvedWarning, ParameterError, TextError
from repsurgery.lm.batching.batches import evaluating, run_batches, sorted_batches, split_texts
from repsurgery.lm.batching.tokens import check_texts, context_length, encode, pad, pad_id
from tests.lm.tiny_models import CONTEXT, texts, tiny_model, tiny_tokenizer


def memory_for(size, error):
    done = []

    def run(batch):
        if len(batch) > size:
            raise error
        done.extend(batch)

    return run, done


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory: 9 bytes"), MemoryError()],
    ids=["device", "host", "python"],
)
def test_a_batch_beyond_memory_is_halved_and_nothing_is_lost(error):
    run, done = memory_for(2, error)
    with pytest.warns(BatchHalvedWarning, match="does not fit") as warned:
        run_batches([[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11]], run, progress=False, label="test")
    assert done == list(range(12))
    assert len(warned) == 2  # 8 to 4, 4 to 2; the later batch starts at 2


def test_one_item_beyond_memory_is_an_error():
    run, _ = memory_for(0, torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(torch.OutOfMemoryError):
        run_batches([[0]], run, progress=False, label="test")


def test_other_errors_are_not_taken_for_memory():
    run, _ = memory_for(0, RuntimeError("shape mismatch"))
    with pytest.raises(RuntimeError, match="shape mismatch"):
        run_batches([[0, 1]], run, progress=False, label="test")


def test_a_model_in_training_is_evaluated_and_goes_back_to_training():
    model = tiny_model("gpt2")
    model.transformer.h.train()
    with evaluating(model):
        assert not any(module.training for module in model.modules())
        assert not torch.is_grad_enabled()
    assert not model.training and not model.transformer.drop.training
    assert model.transformer.h.training and model.transformer.h[0].attn.training
    assert torch.is_grad_enabled()


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


SOME = texts(38, seed=5)


@pytest.mark.parametrize("parts", [1, 2, 3, 9, 10, 14])
@pytest.mark.parametrize("size", [1, 4, 40])
def test_parts_read_the_batches_of_one_process(model, tokenizer, parts, size):
    found = split_texts(model, tokenizer, SOME, parts=parts, max_length=None, batch_size=size)
    lengths = [len(tokens) for tokens in tokenizer(SOME)["input_ids"]]
    wanted = sorted_batches(lengths, size)
    assert len(found) == parts
    read = [
        [part[i] for i in batch] for part in found for batch in sorted_batches([lengths[i] for i in part], size) if part
    ]
    assert sorted(read) == sorted(wanted)
    assert max(map(len, found)) - min(map(len, found)) <= size
