"""From texts to padded batches of tokens, without touching the user's tokenizer."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from torch import nn

from repsurgery.errors import ParameterError, TextError

__all__ = ["Tokens", "check_texts", "context_length", "encode", "pad", "pad_id", "sorted_batches"]

Tokens = list[int]
NO_LIMIT = 10**6
"""Tokenizers that know no limit say 10³⁰."""


def check_texts(texts: Iterable[str], *, caller: str) -> list[str]:
    """Return ``texts`` as a list, or say which of them cannot be used."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise ParameterError(f"{caller} got {type(texts).__name__} for texts; it takes a list of strings.")
    texts = list(texts)  # columns of frames and arrays are welcome too
    if not texts:
        raise TextError(f"{caller} got no texts; it needs at least one.")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TextError(f"{caller} got {type(text).__name__} as text {i}; every text must be a string.")
        if not text.strip():
            raise TextError(f"{caller} got an empty text at index {i}. Drop it together with its label.")
    return list(texts)


def encode(
    model: nn.Module,
    tokenizer: Any,
    texts: list[str],
    *,
    max_length: int | None,
    room: int = 0,
    caller: str,
) -> list[Tokens]:
    """Return the tokens of each text, special tokens included.

    Parameters
    ----------
    max_length : int or None
        Cut longer texts to so many tokens; without it a text beyond the context is an error.
    room : int
        How many positions must stay free behind each text.
    """
    limit = context_length(model, tokenizer)
    if max_length is not None and not (isinstance(max_length, int) and 0 < max_length <= limit - room):
        raise ParameterError(
            f"max_length is {max_length!r}; this model reads 1 to {limit - room} tokens"
            + (f" with room for {room} new ones." if room else ".")
        )
    cut = {"truncation": True, "max_length": max_length} if max_length is not None else {}
    found: list[Tokens] = tokenizer(texts, add_special_tokens=True, padding=False, verbose=False, **cut)["input_ids"]
    for i, tokens in enumerate(found):
        if not tokens:
            raise TextError(f"{caller} got a text without tokens at index {i}: {texts[i][:40]!r}. Drop it.")
        if len(tokens) > limit - room:
            raise TextError(
                f"{caller} got a text of {len(tokens)} tokens at index {i}; the context holds {limit}"
                + (f", of which {room} are for new tokens. " if room else ". ")
                + f"Cut the text, or pass max_length={limit - room} to read its first tokens only."
            )
    return found


def context_length(model: nn.Module, tokenizer: Any) -> int:
    """Return how many tokens the model reads at once: the smaller of its own limit and the tokenizer's."""
    config: Any = getattr(model, "config", None)
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    own = int(getattr(config, "max_position_embeddings", None) or NO_LIMIT)
    if "roberta" in str(getattr(config, "model_type", "")):
        own -= int(config.pad_token_id) + 1  # these models count positions from behind the padding index
    return min(own, int(min(getattr(tokenizer, "model_max_length", None) or NO_LIMIT, NO_LIMIT)))


def pad_id(model: nn.Module, tokenizer: Any) -> int:
    """Return a token to pad with; masked out, so any will do where the tokenizer has none."""
    config = getattr(model, "config", None)
    known = (tokenizer.pad_token_id, getattr(config, "pad_token_id", None), tokenizer.eos_token_id)
    return int(next((token for token in known if isinstance(token, int) and token >= 0), 0))


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
    """Return the indices in batches of ``size``, longest first: little padding, and the worst case comes at once."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ParameterError(f"batch_size is {size!r}; it must be a whole number of at least 1.")
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    return [order[start : start + size] for start in range(0, len(order), size)]
