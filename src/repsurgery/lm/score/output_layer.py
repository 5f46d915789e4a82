"""The output layer alone: from final states to log-likelihoods, without all logits in memory at once."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from repsurgery.errors import ModelError
from repsurgery.lm.sites.families import family_of, text_config

__all__ = ["OutputLayer"]

LOGITS = 2**24
"""The largest number of logits in memory at a time."""


class OutputLayer:
    """The part of a causal language model after the site "final".

    Parameters
    ----------
    model : nn.Module
        A transformers decoder with its output layer.

    Guarantees
    ----------
    Log-likelihoods are those of the model's own logits, in every family
    (test_the_output_layer_is_the_models_own).
    """

    def __init__(self, model: nn.Module) -> None:
        self._linear: Any = getattr(model, "get_output_embeddings", lambda: None)()
        if self._linear is None:
            raise ModelError(f"{type(model).__name__} has no output layer. Load a causal language model.")
        self._cap: float | None = getattr(text_config(model), family_of(model).logit_cap, None)

    @property
    def weight(self) -> torch.Tensor:
        """The weight W (vocabulary, d), in float32 or wider."""
        weight: torch.Tensor = self._linear.weight.detach()
        if not weight.is_floating_point():
            raise ModelError(f"The output layer's weight is {weight.dtype}. Load the model without quantisation.")
        return weight.to(torch.promote_types(weight.dtype, torch.float32))

    @property
    def capped(self) -> bool:
        """Whether the logits are bounded by a cap."""
        return self._cap is not None

    def distributions(self, rows: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor | None]]:
        """Yield, for blocks of rows (n, d), their slice, p (m, vocabulary) and the cap's derivative, of the same shape.

        The derivative is None where logits are not capped.
        """
        size = max(1, LOGITS // self._linear.weight.shape[0])
        for start in range(0, len(rows), size):
            block = slice(start, min(start + size, len(rows)))
            raw: torch.Tensor = self._linear(rows[block].to(self._linear.weight.device))
            raw = raw.to(torch.promote_types(raw.dtype, torch.float32))
            if self._cap is None:
                yield block, raw.softmax(dim=-1), None
            else:
                bounded = torch.tanh(raw / self._cap)
                yield block, (self._cap * bounded).softmax(dim=-1), 1 - bounded.square()

    def log_likelihoods(self, rows: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return log p(target) (n,) in float32 on the host, from final states (n, d) and tokens (n,)."""
        size = max(1, LOGITS // self._linear.weight.shape[0])
        parts = [
            _log_likelihoods(self._logits(states), tokens)
            for states, tokens in zip(torch.split(rows, size), torch.split(targets, size), strict=True)
        ]
        return torch.cat(parts)

    def _logits(self, rows: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._linear(rows.to(self._linear.weight.device))
        return logits if self._cap is None else self._cap * torch.tanh(logits / self._cap)


def _log_likelihoods(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    log_p = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
    return log_p.gather(1, targets[:, None].to(log_p.device))[:, 0].cpu()
