"""`CachedModel`: a transformers decoder with its cache, as a `Decoder`."""

from collections.abc import Sequence
from typing import Any

import torch

from repsurgery.lm.generate.decode_pass import decode_pass, is_plain_cache, parameters_of

__all__ = ["CachedModel"]


class CachedModel:
    """Reads rows, and then one token of each row at a time.

    Parameters
    ----------
    model
        A transformers decoder, or PEFT's wrapper of one.
    adapters : sequence of str
        With PEFT, the adapter of each row; "__base__" is the model without any. Empty: the active one for all rows.

    Attributes
    ----------
    cache
        Keys and values of every row so far.
    mask : (n, length) tensor
        Which positions of the cache hold tokens.
    rows : (n,) tensor
        The row of the model's last pass that belongs to each row; equal prompts share one.

    Guarantees
    ----------
    The logits are those of the whole text without a cache (test_logits_with_a_cache_are_those_without).
    """

    def __init__(self, model: Any, adapters: Sequence[str] = ()) -> None:
        self.model, self.adapters = model, list(adapters)
        self.cache: Any = None
        self.mask = torch.empty(0, 0)
        self.rows = torch.empty(0, dtype=torch.long)
        self._accepted = parameters_of(model)

    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, vocabulary) after rows (n, length) padded on the left; equal rows are read once."""
        self.mask, first, index = mask, *self._distinct(ids, mask)
        if len(first) == len(ids):
            first = index = torch.arange(len(ids), device=ids.device)
        output = self._forward(ids[first], mask[first], [self.adapters[i] for i in first] if self.adapters else [])
        if len(first) < len(ids):
            if not is_plain_cache(output.past_key_values):
                output = self._forward(ids, mask, self.adapters)
                index = torch.arange(len(ids), device=ids.device)
            else:
                output.past_key_values.batch_select_indices(index)
        self.cache, self.rows = output.past_key_values, index
        logits: torch.Tensor = output.logits[:, -1].float()[index]
        return logits

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, vocabulary) after one more token (n,) of each row."""
        self.mask = torch.cat([self.mask, torch.ones_like(self.mask[:, :1])], dim=1)
        output = self._forward(tokens[:, None], self.mask, self.adapters, past_key_values=self.cache)
        self.cache, self.rows = output.past_key_values, torch.arange(len(tokens), device=tokens.device)
        logits: torch.Tensor = output.logits[:, -1].float()
        return logits

    def _forward(self, ids: torch.Tensor, mask: torch.Tensor, adapters: list[str], **more: Any) -> Any:
        if adapters:
            more["adapter_names"] = adapters
        return decode_pass(self.model, self._accepted, ids, mask, **more)

    def _distinct(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the index of the first of each group of equal rows, and the group of each row."""
        names = sorted(set(self.adapters))
        adapter = [names.index(name) for name in self.adapters] if names else [0] * len(ids)
        key = torch.cat([torch.tensor(adapter, device=ids.device)[:, None], ids.masked_fill(mask == 0, -1)], dim=1)
        rows, index = torch.unique(key, dim=0, return_inverse=True)
        first = torch.full((len(rows),), len(ids), device=ids.device)
        first.scatter_reduce_(0, index, torch.arange(len(ids), device=ids.device), "amin")
        return first, index
