"""Split the tokens of a text into windows that predict each of them once, as lm-evaluation-harness does."""

from dataclasses import dataclass
from typing import Any

from repsurgery.errors import ModelError
from repsurgery.lm.batching.tokens import Tokens

__all__ = ["Window", "document_tokens", "prefix_token", "rolling_windows"]


@dataclass(frozen=True, slots=True)
class Window:
    """The tokens that a model reads at once, and the tokens that its last positions predict.

    Attributes
    ----------
    inputs : tuple of int
    targets : tuple of int
        At most as many as inputs; the last ``len(targets)`` positions predict them.
    """

    inputs: tuple[int, ...]
    targets: tuple[int, ...]


def rolling_windows(tokens: Tokens, prefix: int, max_length: int) -> list[Window]:
    """Return windows of at most ``max_length`` inputs whose concatenated targets are ``tokens``.

    The first window starts with ``prefix``, because nothing comes before it. Every later window is full: where fewer
    tokens remain to be predicted, it also reads tokens before them.
    """
    read = [prefix, *tokens]
    windows = []
    for start in range(0, len(tokens), max_length):
        end = min(start + max_length, len(tokens))
        windows.append(Window(tuple(read[max(end - max_length, 0) : end]), tuple(tokens[start:end])))
    return windows


def prefix_token(tokenizer: Any) -> int:
    """Return the token to put before a text: the beginning-of-text token, else the end-of-text token."""
    for token in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    raise ModelError(
        "This tokenizer has neither a beginning-of-text nor an end-of-text token, so the first token of a "
        "document cannot be predicted. Set tokenizer.bos_token."
    )


def document_tokens(tokenizer: Any, text: str, prefix: int) -> Tokens:
    """Return the tokens of ``text`` to predict, with those that the tokenizer adds unless the text contains them."""
    bare = {"add_special_tokens": False} if text.startswith(tokenizer.decode(prefix)) else {}
    tokens: Tokens = tokenizer.encode(text, verbose=False, **bare)
    return tokens
