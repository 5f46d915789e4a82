"""Parts of a reading job, for several processes, that read the very batches one process would."""

from typing import Any

from torch import nn

from repsurgery.lm.texts import encode, sorted_batches

__all__ = ["split_texts"]


def split_texts(
    model: nn.Module, tokenizer: Any, texts: list[str], *, parts: int, max_length: int | None, batch_size: int
) -> list[list[int]]:
    """Return the indices of the texts of each part, in order; parts beyond the number of batches stay empty.

    `class_moments` of a part makes the same batches as of all texts. A state is rounded differently when its text is
    padded to another length, so only then is the sum over parts that of one process to the last digits.

    Guarantees
    ----------
    The batches of the parts are those of all texts (test_parts_read_the_batches_of_one_process).
    """
    tokens = encode(model, tokenizer, texts, max_length=max_length, caller="class_moments")
    batches = sorted_batches([len(row) for row in tokens], batch_size)
    # only the last batch may be short, and it is the last of its part: cutting the part into batches finds all of them
    return [sorted(i for batch in batches[part::parts] for i in batch) for part in range(parts)]
