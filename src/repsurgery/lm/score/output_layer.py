"""The output layer alone: from final states to log-likelihoods, without all logits in memory at once."""

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
