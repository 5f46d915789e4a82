"""From texts to tokens, and from tokens to padded arrays."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import nn

from repsurgery.errors import ParameterError, TextError
from repsurgery.lm.chat import ChatText, chat_prompt, is_conversation, rendered
from repsurgery.lm.sites.families import text_config

__all__ = ["Tokens", "check_texts", "context_length", "encode", "pad", "pad_id"]

Tokens = list[int]
NO_LIMIT = 10**6
"""Context length of models and tokenizers that state none; tokenizers then report 10³⁰."""


def check_texts(texts: Iterable[Any], *, caller: str, tokenizer: Any = None) -> list[str]:
    """Return ``texts`` as a list, or raise an error that names the text that cannot be used.

    With a ``tokenizer``, a conversation may stand in the place of a text; it becomes a `ChatText` of what the chat
    template writes.
    """
    needed = "a list of strings" if tokenizer is None else "a list of strings or conversations"
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise ParameterError(f"{caller} got {type(texts).__name__} for texts; it takes {needed}.")
    texts = list(texts)  # columns of frames and arrays are accepted too
    if not texts:
        raise TextError(f"{caller} got no texts; it needs at least one.")
    if tokenizer is not None and all(isinstance(text, Mapping) for text in texts):
        raise ParameterError(f"{caller} got one conversation for texts; it takes {needed}, such as [conversation].")
    return [_checked(i, text, caller, tokenizer) for i, text in enumerate(texts)]


def _checked(i: int, text: Any, caller: str, tokenizer: Any) -> str:
    if tokenizer is not None and (isinstance(text, ChatText) or is_conversation(text)):
        try:
            return rendered(tokenizer, text.messages if isinstance(text, ChatText) else text)
        except TextError as error:
            raise TextError(f"{caller} cannot read the conversation at index {i}. {error}") from error
    if not isinstance(text, str):
        needed = "a string" if tokenizer is None else "a string or a conversation"
        raise TextError(f"{caller} got {type(text).__name__} as text {i}; every text must be {needed}.")
    if not text.strip():
        raise TextError(f"{caller} got an empty text at index {i}. Drop it together with its label.")
    return text


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

    A `ChatText` has the tokens of `chat_prompt`. It is cut to ``max_length`` only where it ends with the assistant's
    message: a conversation that lost its end would not be answered.

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
    plain = [text for text in texts if not isinstance(text, ChatText)]
    options = {"add_special_tokens": special_tokens, "padding": False, "verbose": False, **truncation}
    encoded = iter(tokenizer(plain, **options)["input_ids"] if plain else ())
    rows: list[Tokens] = [
        _chat_tokens(tokenizer, text, None if room else max_length) if isinstance(text, ChatText) else next(encoded)
        for text in texts
    ]
    most = limit - room
    for i, (text, tokens) in enumerate(zip(texts, rows, strict=True)):
        if not tokens:
            raise TextError(f"{caller} got a text without tokens at index {i}: {text[:40]!r}. Drop it.")
        if len(tokens) > most:
            raise TextError(
                f"{caller} got a text of {len(tokens)} tokens at index {i}; the context holds {limit}"
                + (f", of which {room} are for new tokens. " if room else ". ")
                + (remedy(i) if remedy else _shorter(text, most))
            )
        if max_length is not None and len(tokens) > max_length:
            raise TextError(
                f"{caller} got a conversation of {len(tokens)} tokens at index {i}, and max_length is {max_length}. "
                + _shorter(text, max_length)
            )
    return rows


def _chat_tokens(tokenizer: Any, text: ChatText, max_length: int | None) -> Tokens:
    tokens = chat_prompt(tokenizer, text.messages)
    return tokens[:max_length] if text.answered else tokens


def _shorter(text: str, most: int) -> str:
    if isinstance(text, ChatText) and not text.answered:
        return "Leave out its oldest messages: without its end, a conversation has no answer."
    return f"Cut the text, or pass max_length={most} to read its first tokens only."


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
