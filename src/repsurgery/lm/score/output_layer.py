"""The output layer alone: from final states to log-likelihoods and divergences, with few logits in memory at once."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from repsurgery.errors import ModelError
from repsurgery.lm.sites.families import family_of, text_config

__all__ = ["OutputLayer", "divergences", "reads_final"]

LOGITS = 2**24
"""The largest number of logits in memory at a time."""


def reads_final(model: nn.Module) -> bool:
    """Return whether the logits of ``model`` are its output layer, and perhaps a cap, on the states at "final"."""
    family = family_of(model)
    # a model that is not in the table may scale its logits, and the head of an encoder has more than one layer
    direct = bool(family.stems) and not family.encoder_decoder and family.head_readers == ("",)
    return direct and _output_embeddings(model) is not None


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
    Divergences are those of the model's own logits, in every family
    (test_the_divergence_is_that_of_two_whole_passes).
    """

    def __init__(self, model: nn.Module) -> None:
        self._linear: Any = _output_embeddings(model)
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
        size = self._rows_at_once()
        for start in range(0, len(rows), size):
            block = slice(start, min(start + size, len(rows)))
            raw = _wide(self._raw(rows[block]))
            if self._cap is None:
                yield block, raw.softmax(dim=-1), None
            else:
                bounded = torch.tanh(raw / self._cap)
                yield block, (self._cap * bounded).softmax(dim=-1), 1 - bounded.square()

    def log_likelihoods(self, rows: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return log p(target) (n,) in float32 on the host, from final states (n, d) and tokens (n,)."""
        size = self._rows_at_once()
        parts = [
            _log_likelihoods(self._logits(states), tokens)
            for states, tokens in zip(torch.split(rows, size), torch.split(targets, size), strict=True)
        ]
        return torch.cat(parts)

    def divergences(self, rows: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        """Return KL(p ‖ q) (n,) in nats on the host: p as predicted from final states rows (n, d), q from others."""
        size = self._rows_at_once(2)
        parts = [
            divergences(self._logits(of_p), self._logits(of_q))
            for of_p, of_q in zip(torch.split(rows, size), torch.split(others, size), strict=True)
        ]
        return torch.cat(parts)

    def _rows_at_once(self, sets: int = 1) -> int:
        return max(1, LOGITS // (sets * int(self._linear.weight.shape[0])))

    def _raw(self, rows: torch.Tensor) -> torch.Tensor:
        weight = self._linear.weight
        # Mamba's last norm returns float32 whatever the dtype of the weights; a quantised layer converts its own input
        plain = weight.is_floating_point() and weight.dtype.itemsize > 1
        logits: torch.Tensor = self._linear(rows.to(weight.device, dtype=weight.dtype if plain else rows.dtype))
        return logits

    def _logits(self, rows: torch.Tensor) -> torch.Tensor:
        logits = self._raw(rows)
        return logits if self._cap is None else self._cap * torch.tanh(logits / self._cap)


def divergences(logits: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return KL(p ‖ q) (n,) in nats on the host: p has the given logits (n, vocabulary), q has others."""
    log_p, log_q = (_wide(x).log_softmax(dim=-1) for x in (logits, others))
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1).cpu()


def _log_likelihoods(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    log_p = _wide(logits).log_softmax(dim=-1)
    return log_p.gather(1, targets[:, None].to(log_p.device))[:, 0].cpu()


def _wide(logits: torch.Tensor) -> torch.Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _output_embeddings(model: nn.Module) -> Any:
    return getattr(model, "get_output_embeddings", lambda: None)()
