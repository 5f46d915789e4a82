"""Which positions of a forward pass are padding, prompt or new."""

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch

from repsurgery.errors import ParameterError

__all__ = ["Forward", "Positions", "check_positions", "forward_of"]

Positions = Literal["all", "generated", "prompt", "last"]
"""``all``: every position that is not padding. ``prompt``: the prompt's. ``last``: the last of the prompt only.
``generated``: the last of the prompt and every later one, that is every position that predicts a new token.
"""


def check_positions(positions: Positions) -> Positions:
    """Return ``positions``, or say which there are."""
    if positions not in get_args(Positions):
        raise ParameterError(f"positions is {positions!r}; it must be one of {list(get_args(Positions))}.")
    return positions


@dataclass(frozen=True, slots=True, eq=False)
class Forward:
    """One forward pass: its tokens (batch, length), where they stand in the sequence, and which are padding.

    Attributes
    ----------
    batch, length : int
    offset : int
        How many positions the cache already holds; column j of this pass is position ``offset + j``.
    prompt : int or None
        The prompt's length where `generate` runs, padding included; None in a plain forward, which is all prompt.
    mask : attention mask as the model got it, or None
    """

    batch: int
    length: int
    offset: int
    prompt: int | None
    mask: Any
    _known: dict[str, torch.Tensor | bool] = field(default_factory=dict)

    def wanted(self, positions: Positions) -> torch.Tensor | bool:
        """Return which positions are meant: (batch, length) bool, True for all of them, False for none."""
        if positions not in self._known:
            self._known[positions] = self._wanted(positions)
        return self._known[positions]

    def _wanted(self, positions: Positions) -> torch.Tensor | bool:
        if self.prompt is None and positions in ("last", "generated"):
            return self._last_real()
        first, stop = 0, self.length
        if self.prompt is not None:
            end = self.prompt - self.offset
            if positions in ("last", "generated"):
                first = max(end - 1, 0)
            if positions in ("last", "prompt"):
                stop = max(min(end, self.length), 0)
        if first >= stop:
            return False
        return self._columns(first, stop)

    def _columns(self, first: int, stop: int) -> torch.Tensor | bool:
        real = self._real()
        if (first, stop) == (0, self.length):
            return True if real is None else real
        chosen = torch.zeros(self.batch, self.length, dtype=torch.bool)
        chosen[:, first:stop] = True
        return chosen if real is None else chosen.to(real.device) & real

    def _last_real(self) -> torch.Tensor:
        real = self._real()
        if real is None:
            return self._last_column()
        columns = torch.arange(self.length, device=real.device)
        last = torch.where(real, columns, -1).amax(dim=1, keepdim=True)
        return columns == last

    def _last_column(self) -> torch.Tensor:
        chosen = torch.zeros(self.batch, self.length, dtype=torch.bool)
        chosen[:, -1] = True
        return chosen

    def _real(self) -> torch.Tensor | None:
        # what generate has appended is never padding: one look at a mask less in every decoding step
        if self.prompt is not None and self.offset >= self.prompt:
            return None
        return _real(self.mask, self.batch, self.length, self.offset)


def forward_of(arguments: dict[str, Any], prompt: int | None) -> Forward | None:
    """Return the pass that a model called with these named ``arguments`` is about to make; None without tokens."""
    tokens = arguments.get("input_ids")
    if tokens is None:
        tokens = arguments.get("inputs_embeds")
    if not isinstance(tokens, torch.Tensor):
        return None
    batch, length = tokens.shape[0], tokens.shape[1]
    offset = _cached(arguments.get("past_key_values"))
    return Forward(batch, length, offset, prompt, arguments.get("attention_mask"))


def _cached(cache: Any) -> int:
    if hasattr(cache, "get_seq_length"):
        return int(cache.get_seq_length())
    return int(cache[0][0].shape[-2]) if cache else 0


def _real(mask: Any, batch: int, length: int, offset: int) -> torch.Tensor | None:
    if isinstance(mask, dict):
        mask = next((m for m in mask.values() if m is not None), None)
    if mask is None:
        return None
    if not isinstance(mask, torch.Tensor) or mask.ndim not in (2, 4):
        raise ParameterError(
            f"The attention mask is a {type(mask).__name__} from which padding cannot be read. "
            "Pass a (batch, length) mask, or load the model with attn_implementation='sdpa' or 'eager'."
        )
    real = mask[:, -length:] if mask.ndim == 2 else _diagonal(mask, length, offset)
    if real.shape != (batch, length) or bool(real.all()):
        return None
    return real.bool()


def _diagonal(mask: torch.Tensor, length: int, offset: int) -> torch.Tensor:
    # a static cache brings (batch, heads, queries, keys): a token that may look at itself is not padding
    keys = mask.shape[-1]
    start = min(offset, keys - length)
    own = mask[:, 0].diagonal(offset=start, dim1=-2, dim2=-1)[:, :length]
    return own if own.dtype == torch.bool else own >= 0
