"""Parts of a job are read as one process would read them."""

import pytest

from repsurgery.lm.splitting import split_texts
from repsurgery.lm.texts import sorted_batches
from tests.lm.tiny_models import texts

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
