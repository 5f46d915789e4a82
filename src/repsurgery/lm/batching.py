"""From texts to padded batches of tokens, and from batches to passes of a model that fit into memory."""

import gc
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import torch
from torch import nn

from repsurgery.arrays import check_integer
from repsurgery.errors import BatchHalvedWarning, ParameterError, TextError
from repsurgery.lm.sites.families import text_config
from repsurgery.lm.sites.wrappers import behind
from repsurgery.progress import progress_bar

__all__ = [
    "Tokens",
    "check_texts",
    "context_length",
    "encode",
    "entry_device",
    "evaluating",
    "map_batches",
    "out_of_memory",
    "pad",
    "pad_id",
    "run_batches",
    "sorted_batches",
    "split_texts",
]

Result = TypeVar("Result")
Tokens = list[int]
NO_LIMIT = 10**6
"""Context length of models and tokenizers that state none; tokenizers then report 10³⁰."""

_EVALUATING: "weakref.WeakKeyDictionary[nn.Module, tuple[int, list[nn.Module]]]" = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


def check_texts(texts: Iterable[str], *, caller: str) -> list[str]:
    """Return ``texts`` as a list, or raise an error that names the text that cannot be used."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise ParameterError(f"{caller} got {type(texts).__name__} for texts; it takes a list of strings.")
    texts = list(texts)  # columns of frames and arrays are accepted too
    if not texts:
        raise TextError(f"{caller} got no texts; it needs at least one.")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TextError(f"{caller} got {type(text).__name__} as text {i}; every text must be a string.")
        if not text.strip():
            raise TextError(f"{caller} got an empty text at index {i}. Drop it together with its label.")
    return texts


def encode(
    model: nn.Module,
    tokenizer: Any,
    texts: list[str],
    *,
    max_length: int | None,
    room: int = 0,
    special_tokens: bool = True,
    remedy: Callable[[int], str] | None = None,
    caller: str,
) -> list[Tokens]:
    """Return the tokens of each text, including special tokens; the tokenizer is not changed.

    Parameters
    ----------
    max_length : int or None
        Truncate longer texts to this many tokens; None raises an error for a text beyond the context.
    room : int
        The number of positions that must remain free after each text.
    special_tokens : bool
        Whether the tokenizer adds its special tokens; a text that a chat template wrote has them already.
    remedy : function of an index, or None
        What to do about a text beyond the context, where ``max_length`` cannot be passed.
    """
    limit = context_length(model, tokenizer)
    if max_length is not None and not (isinstance(max_length, int) and 0 < max_length <= limit - room):
        raise ParameterError(
            f"max_length is {max_length!r}; this model reads 1 to {limit - room} tokens"
            + (f" with room for {room} new ones." if room else ".")
        )
    truncation = {"truncation": True, "max_length": max_length} if max_length is not None else {}
    encoded = tokenizer(texts, add_special_tokens=special_tokens, padding=False, verbose=False, **truncation)
    rows: list[Tokens] = encoded["input_ids"]
    cut = f"Cut the text, or pass max_length={limit - room} to read its first tokens only."
    for i, tokens in enumerate(rows):
        if not tokens:
            raise TextError(f"{caller} got a text without tokens at index {i}: {texts[i][:40]!r}. Drop it.")
        if len(tokens) > limit - room:
            raise TextError(
                f"{caller} got a text of {len(tokens)} tokens at index {i}; the context holds {limit}"
                + (f", of which {room} are for new tokens. " if room else ". ")
                + (remedy(i) if remedy else cut)
            )
    return rows


def context_length(model: nn.Module, tokenizer: Any) -> int:
    """Return how many tokens the model reads at once: the smaller of its own limit and the tokenizer's."""
    own = int(getattr(text_config(model), "max_position_embeddings", None) or NO_LIMIT)
    for path, module in model.named_modules():
        if path.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            own -= int(module.padding_idx) + 1  # positions are counted from after the padding index
    return min(own, int(min(getattr(tokenizer, "model_max_length", None) or NO_LIMIT, NO_LIMIT)))


def pad_id(model: nn.Module, tokenizer: Any) -> int:
    """Return a token to pad with; padding is masked, so any token serves where the tokenizer has none."""
    config = getattr(model, "config", None)
    candidates = (tokenizer.pad_token_id, getattr(config, "pad_token_id", None), tokenizer.eos_token_id)
    return int(next((token for token in candidates if isinstance(token, int) and token >= 0), 0))


def pad(rows: Sequence[Tokens], *, token: int, side: Literal["left", "right"]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and mask, both (n, longest), of rows of tokens."""
    longest = max(map(len, rows))
    ids = torch.full((len(rows), longest), token)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        columns = slice(longest - len(row), longest) if side == "left" else slice(0, len(row))
        ids[i, columns] = torch.tensor(row)
        mask[i, columns] = 1
    return ids, mask


def sorted_batches(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Return the indices in batches of ``size``, longest first: with little padding, and the largest batch first."""
    size = check_integer("batch_size", size)
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    return [order[start : start + size] for start in range(0, len(order), size)]


def split_texts(
    model: nn.Module, tokenizer: Any, texts: list[str], *, parts: int, max_length: int | None, batch_size: int
) -> list[list[int]]:
    """Return the indices of the texts that each of ``parts`` processes reads, in order; some may be empty.

    `class_moments` of a part forms the same batches as `class_moments` of all texts. A state is rounded differently
    when its text is padded to another length, so only then does the sum over parts equal the result of one process.

    Guarantees
    ----------
    The batches of the parts are those of all texts (test_parts_read_the_batches_of_one_process).
    """
    tokens = encode(model, tokenizer, texts, max_length=max_length, caller="class_moments")
    batches = sorted_batches([len(row) for row in tokens], batch_size)
    # only the last batch may be short, and it is the last of its part, so each part is cut into the same batches again
    return [sorted(i for batch in batches[part::parts] for i in batch) for part in range(parts)]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Run the block without dropout and gradients; the last thread to leave restores the mode of every module."""
    model = behind(model)
    with _LOCK:
        count, training = _EVALUATING.get(model, (0, []))
        training = [*training, *(module for module in model.modules() if module.training)]
        _EVALUATING[model] = count + 1, training
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        with _LOCK:
            count, training = _EVALUATING.pop(model)
            if count > 1:
                _EVALUATING[model] = count - 1, training
            else:
                for module in training:
                    module.training = True


def entry_device(model: nn.Module) -> torch.device:
    """Return the device on which the model expects its tokens."""
    embeddings = getattr(model, "get_input_embeddings", None)
    module = embeddings() if callable(embeddings) else model
    device: torch.device = next(module.parameters()).device
    return device


def run_batches(
    batches: Sequence[list[int]], run: Callable[[list[int]], None], *, progress: bool, label: str, done: int = 0
) -> None:
    """Call ``run`` on each batch of indices; if one exceeds memory, halve it and every later batch of its size.

    Parameters
    ----------
    done : int
        Items finished in an earlier run, for the progress bar.
    """
    waiting = [list(batch) for batch in reversed(batches)]
    largest = max(map(len, batches), default=1)
    total = done + sum(map(len, batches))
    with progress_bar(label, total, show=progress, done=done) as advance:
        while waiting:
            batch = waiting.pop()
            if len(batch) > largest:
                waiting += [batch[largest:], batch[:largest]]
                continue
            try:
                run(batch)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error) or len(batch) == 1:
                    raise
                largest = (len(batch) + 1) // 2
                waiting.append(batch)
                _warn(len(batch), largest, label)
            else:
                advance(len(batch))


def map_batches(
    lengths: Sequence[int], run: Callable[[list[int]], Sequence[Result]], *, batch_size: int, progress: bool, label: str
) -> list[Result]:
    """Return the result of each item, in order, where ``run`` returns the results of a batch of indices."""
    results: dict[int, Result] = {}

    def store(batch: list[int]) -> None:
        results.update(zip(batch, run(batch), strict=True))

    run_batches(sorted_batches(lengths, batch_size), store, progress=progress, label=label)
    return [results[i] for i in range(len(lengths))]


def out_of_memory(error: BaseException) -> bool:
    """Return whether ``error`` says that memory is exhausted."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return "out of memory" in str(error).lower() or "can't allocate memory" in str(error).lower()


def _warn(size: int, smaller: int, label: str) -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    warnings.warn(
        f"{label}: a batch of {size} does not fit into memory; continuing with {smaller}. "
        f"Pass batch_size={smaller} to avoid the failed attempt.",
        BatchHalvedWarning,
        stacklevel=4,
    )
