"""Which positions of a forward pass are padding, virtual, prompt or new."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch

from repsurgery.errors import ParameterError, PassError, ShapeError

__all__ = [
    "ANY_POSITION",
    "UNKNOWN_TURNS",
    "Forward",
    "Positions",
    "Texts",
    "check_positions",
    "columns_between",
    "span",
]

Positions = Literal["all", "generated", "prompt", "last", "assistant"]
"""``all``: every position that is not padding. ``prompt``: those of the prompt. ``last``: the last of the prompt only.
``generated``: the last of the prompt and every later one, that is every position that predicts a new token.
``assistant``: the same for every answer of a conversation, the earlier ones in the prompt and the one that is being
generated: each token of the assistant's turns, and the position before the first of each.
"""

UNKNOWN_TURNS = (
    "Positions 'assistant' are known only where lm.generate continues conversations. Pass conversations as its "
    "prompts, or steer with positions='generated', which is the answer that is being written."
)
"""What to do where a pass has no turns of an assistant."""

ANY_POSITION = "Call the model itself with input_ids and attention_mask, or steer with positions='all' without padding."
"""The remedy where a pass cannot be interpreted."""


def check_positions(positions: Positions) -> Positions:
    """Return ``positions``, or raise an error that lists the allowed values."""
    if positions not in get_args(Positions):
        raise ParameterError(f"positions is {positions!r}; it must be one of {list(get_args(Positions))}.")
    return positions


def span(positions: Positions, prompt: Any) -> tuple[Any, Any]:
    """Return the first position of a text that is steered, and the one after the last; None: to its end.

    This is the only place where positions are decided. ``prompt`` is the length of the text's prompt, or a tensor of
    lengths, to which the result then applies elementwise. The earlier answers that "assistant" adds are not part of it.

    Guarantees
    ----------
    Generating and scoring steer the same positions (test_positions_are_those_that_generation_steers).

    Examples
    --------
    >>> span("generated", 3), span("prompt", 3), span("last", 3)
    ((2, None), (0, 3), (2, 3))
    """
    first = prompt - 1 if positions in ("last", "generated", "assistant") else 0
    return first, prompt if positions in ("last", "prompt") else None


def columns_between(first: Any, stop: Any, length: int, device: Any = None) -> torch.Tensor:
    """Return which of ``length`` columns lie in a `span`: (length,) bool, or (n, length) for spans (n, 1)."""
    columns = torch.arange(length, device=device)
    chosen: torch.Tensor = columns >= first
    return chosen if stop is None else chosen & (columns < stop)


@dataclass(frozen=True, slots=True)
class Texts:
    """What a function that reads whole texts knows of their prompts.

    Attributes
    ----------
    prompts : tuple of int, int or None
        The length of the prompt of each text, one length for all of them, or None where nothing is known; then every
        position but "all" is refused.
    remedy : str
        What to do where a position is refused.
    refused : tuple of str
        Further positions to refuse.
    """

    prompts: tuple[int, ...] | int | None
    remedy: str = ""
    refused: tuple[Positions, ...] = ()

    def refuses(self, positions: Positions) -> bool:
        """Return whether these positions are unknown in these texts."""
        return positions in self.refused or (self.prompts is None and positions != "all")


@dataclass(frozen=True, slots=True, eq=False)
class Forward:
    """One forward pass: its tokens (batch, length), their place in the sequence, and which are padding.

    Attributes
    ----------
    batch, length : int
    offset : int or None
        How many positions the cache already holds; column j of this pass is position ``offset + j``. None where the
        cache does not reveal it.
    prompt : int or None
        The prompt's length inside `generate`, padding included; None in any other pass.
    texts : Texts or None
        What is known of the prompts in a pass that scores texts; None in a plain forward pass, whose whole input is the
        prompt.
    mask : attention mask as passed to the model, or None
    virtual : int
        Positions at the start of the sequence that hold no text (PEFT's prompt and prefix tuning); never steered.
    doubt : str or None
        Why the pass cannot be interpreted; then only ``all`` without padding can be located.
    role : str
        The kind of module that makes it; see `sites.names.Role`.
    turns : function or None
        Returns the positions (batch, prompt) of the prompt that belong to an answer of the assistant, see
        `repsurgery.lm.steer.turns`; None where they are not known.
    """

    batch: int
    length: int
    offset: int | None
    prompt: int | None
    mask: Any
    virtual: int = 0
    doubt: str | None = None
    role: str = "model"
    turns: Callable[[], torch.Tensor] | None = None
    texts: Texts | None = None
    _known: dict[str, torch.Tensor | bool] = field(default_factory=dict)

    def require_vectors(self, state: torch.Tensor) -> None:
        """Raise a `ShapeError` unless ``state`` has one vector for each token of this pass."""
        if state.numel() != state.shape[-1] * self.batch * self.length:
            raise ShapeError(
                f"A state of shape {tuple(state.shape)} does not hold one vector for each of {self.batch} x "
                f"{self.length} tokens. Steer a module that returns (batch, length, d)."
            )

    def selected(self, positions: Positions) -> torch.Tensor | bool:
        """Return the selected positions: (batch, length) bool, True for all of them, False for none."""
        if positions not in self._known:
            self._known[positions] = self._selected(positions)
        return self._known[positions]

    def _selected(self, positions: Positions) -> torch.Tensor | bool:
        if self.doubt is not None:
            return self._doubted(self.doubt, positions)
        if self.prompt is None and self.texts is not None and self.texts.refuses(positions):
            raise PassError(f"Positions {positions!r} are unknown in this pass. {self.texts.remedy}")
        plain = self.prompt is None and (self.texts is None or self.texts.prompts is None)
        if self.offset is None and not plain and positions != "all":
            reason = "The cache that this pass continues does not say how many tokens it holds."
            return self._doubted(reason, positions)
        if plain and positions in ("prompt", "last") and (self.offset or 0) > self.virtual:
            reason = "This pass continues a cache outside a call of generate on the steered model."
            return self._doubted(reason, positions)
        if positions == "assistant":
            return self._in_turns()
        start = max(self.virtual - (self.offset or 0), 0)
        if positions == "all" or (plain and positions == "prompt"):
            return self._columns(start, self.length) if start < self.length else False
        first, stop = span(positions, self._last_real() if plain else self._ends())
        if isinstance(first, torch.Tensor) or isinstance(stop, torch.Tensor):
            return self._rows_between(first, stop, start)
        first, stop = max(first, start), self.length if stop is None else min(stop, self.length)
        return self._columns(first, stop) if first < stop else False

    def _ends(self) -> Any:
        """Return the column of this pass at which the prompt ends: of all rows, or (batch, 1)."""
        before = self.virtual - (self.offset or 0)
        if self.prompt is not None:
            return self.prompt + before
        assert self.texts is not None
        prompts = self.texts.prompts
        if isinstance(prompts, int):
            return prompts + before
        assert prompts is not None
        if len(prompts) != self.batch:
            raise PassError(
                f"The prompts of {len(prompts)} texts are known, and this pass reads {self.batch} rows. Score the "
                "texts on a model that reads its batch as a whole, or steer with positions='all'."
            )
        return torch.tensor(prompts)[:, None] + before

    def _rows_between(self, first: Any, stop: Any, start: int) -> torch.Tensor:
        real = self._real()
        device = None if real is None else real.device
        first, stop = (x.to(device) if isinstance(x, torch.Tensor) else x for x in (first, stop))
        chosen = columns_between(first, stop, self.length, device) & columns_between(start, None, self.length, device)
        chosen = chosen.expand(self.batch, -1)
        return chosen if real is None else chosen & real

    def _in_turns(self) -> torch.Tensor | bool:
        """Return the positions of earlier answers, and those that predict a new token."""
        if self.prompt == 0:
            return self._columns(0, self.length)
        if self.prompt is None or self.turns is None:
            raise PassError(UNKNOWN_TURNS)
        turns = self.turns()
        start = (self.offset or 0) - self.virtual  # of this pass, in the prompt
        if start >= self.prompt - 1:
            return self._columns(0, self.length)
        chosen = torch.zeros(self.batch, self.length, dtype=torch.bool)
        chosen[:, max(self.prompt - 1 - start, 0) :] = True
        earlier = turns[:, max(start, 0) : max(start + self.length, 0)]
        first = max(-start, 0)
        chosen[:, first : first + earlier.shape[1]] |= earlier
        real = self._real()
        return chosen if real is None else chosen.to(real.device) & real

    def _doubted(self, reason: str, positions: Positions) -> bool:
        if positions != "all":
            raise PassError(f"{reason} Positions {positions!r} cannot be located in it. {ANY_POSITION}")
        if _has_padding(self.mask):
            raise PassError(f"{reason} Padding cannot be distinguished from text in it. {ANY_POSITION}")
        return True

    def _columns(self, first: int, stop: int) -> torch.Tensor | bool:
        real = self._real()
        if (first, stop) == (0, self.length):
            return True if real is None else real
        chosen = torch.zeros(self.batch, self.length, dtype=torch.bool)
        chosen[:, first:stop] = True
        return chosen if real is None else chosen.to(real.device) & real

    def _last_real(self) -> Any:
        """Return the column after the last token that is not padding: of all rows, or (batch, 1)."""
        real = self._real()
        if real is None:
            return self.length
        columns = torch.arange(1, self.length + 1, device=real.device)
        return torch.where(real, columns, 0).amax(dim=1, keepdim=True)

    def _real(self) -> torch.Tensor | None:
        # tokens that generate appended are never padding, so decoding steps need not look at the mask
        if self.prompt is not None and self.offset is not None and self.offset >= self.virtual + self.prompt:
            return None
        return _real(self.mask, self.batch, self.length, self.offset)


def _real(mask: Any, batch: int, length: int, offset: int | None) -> torch.Tensor | None:
    """Return which of the tokens (batch, length) are not padding; None where there is no padding."""
    mask = _only(mask)
    if mask is None:
        return None
    if not isinstance(mask, torch.Tensor) or mask.ndim not in (2, 4):
        raise PassError(
            f"The attention mask is a {_kind(mask)} from which padding cannot be read. "
            "Pass a (batch, length) mask, or load the model with attn_implementation='sdpa' or 'eager'."
        )
    real = _rows_of(mask, length, offset) if mask.ndim == 2 else _diagonal(mask, length, offset)
    if real is None or real.shape[1] != length or real.shape[0] not in (1, batch):
        if not _has_padding(mask):
            return None
        raise PassError(
            f"An attention mask of shape {tuple(mask.shape)} came with {batch} x {length} tokens after "
            f"{offset or 0} cached ones, so its padding cannot be located. Pass a mask of shape "
            f"({batch}, {(offset or 0) + length})."
        )
    return None if bool(real.all()) else real.bool().expand(batch, length)


def _rows_of(mask: torch.Tensor, length: int, offset: int | None) -> torch.Tensor | None:
    # a mask spans the cached tokens too; some callers pass a mask of the new tokens alone
    width = mask.shape[1]
    return mask[:, -length:] if offset is None or width in (length, offset + length) else None


def _diagonal(mask: torch.Tensor, length: int, offset: int | None) -> torch.Tensor | None:
    # with a static cache the mask is (batch, heads, queries, keys): a token that may attend to itself is not padding
    keys = mask.shape[-1]
    if keys < length:
        return None
    start = keys - length if offset is None else min(offset, keys - length)
    own = mask[:, 0].diagonal(offset=start, dim1=-2, dim2=-1)[:, :length]
    return own if own.dtype == torch.bool else own >= 0


def _only(mask: Any) -> Any:
    return next((m for m in mask.values() if m is not None), None) if isinstance(mask, dict) else mask


def _has_padding(mask: Any) -> bool:
    """Return whether ``mask`` may hold padding: certain for two dimensions, assumed for anything more."""
    mask = _only(mask)
    return mask is not None and not (isinstance(mask, torch.Tensor) and mask.ndim == 2 and bool(mask.all()))


def _kind(mask: Any) -> str:
    return f"tensor of {mask.ndim} dimensions" if isinstance(mask, torch.Tensor) else type(mask).__name__
