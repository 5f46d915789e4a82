"""Score vectors at the output layer: ∇ log p(token | h) in the final state h, and their covariance in closed form."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from repsurgery.arrays import Matrix, Vector
from repsurgery.lm.score.output_layer import OutputLayer

__all__ = ["ScoreLayer", "ScoreSums"]

ROWS = 4096
"""Rows of the output layer that are multiplied in float64 at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoreSums:
    """Sums over positions from which the Fisher matrix at "final" follows.

    Attributes
    ----------
    mass : (vocabulary,) array
        Σ p s², where s is the derivative of the cap on the logits (1 without a cap).
    products : (d, d) array
        Σ m mᵀ with m = Wᵀ(p s).
    """

    mass: Vector
    products: Matrix


class ScoreLayer:
    """The output layer of a causal language model as a function from final states to score vectors.

    The logits are z = cap(Wh), so that ∇ log p(x) = s_x W_x − Wᵀ(p s), with s the derivative of the cap.
    """

    def __init__(self, model: nn.Module) -> None:
        self._head = OutputLayer(model)
        self._weight = self._head.weight
        # without a cap a constant that is added to all rows of W changes nothing; removing it saves digits
        if not self._head.capped:
            self._weight = self._weight - self._weight.mean(dim=0)

    def sums(self, rows: torch.Tensor) -> ScoreSums:
        """Return the sums over final states (n, d)."""
        W = self._weight
        mass = torch.zeros(W.shape[0], dtype=torch.float64, device=W.device)
        products = torch.zeros(W.shape[1], W.shape[1], dtype=torch.float64, device=W.device)
        for _, p, slope in self._head.distributions(rows):
            weighted = p if slope is None else p * slope
            m = (weighted @ W).double()
            mass += (weighted if slope is None else weighted * slope).sum(dim=0, dtype=torch.float64)
            products += m.T @ m
        return ScoreSums(mass.cpu().numpy(), products.cpu().numpy())

    def fisher(self, sums: ScoreSums, count: int) -> Matrix:
        """Return Wᵀ diag(mass) W − products, divided by ``count``: the mean Fisher matrix (d, d) at "final"."""
        F = -sums.products
        mass = torch.from_numpy(np.array(sums.mass))
        for start in range(0, len(mass), ROWS):
            block = self._weight[start : start + ROWS].double().cpu()
            F = F + (block.T @ (mass[start : start + ROWS, None] * block)).numpy()
        return np.asarray((F + F.T) / (2 * count))

    def drawn(self, rows: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
        """Return the score vectors (n, k, d) of tokens drawn at final states (n, d) by uniform numbers (n, k)."""
        return self._scores(rows, uniforms=uniforms)

    def of(self, rows: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Return the score vectors (n, d) of given ``tokens`` (n,) at final states (n, d)."""
        return self._scores(rows, tokens=tokens[:, None])[:, 0]

    def _scores(
        self, rows: torch.Tensor, *, tokens: torch.Tensor | None = None, uniforms: torch.Tensor | None = None
    ) -> torch.Tensor:
        W, parts = self._weight, []
        for block, p, slope in self._head.distributions(rows):
            if tokens is not None:
                x = tokens[block].to(p.device)
            else:
                assert uniforms is not None
                x = _inverse(p, uniforms[block].to(p))
            m = (p if slope is None else p * slope) @ W
            own = W[x] if slope is None else W[x] * slope.gather(1, x)[..., None]
            parts.append(own - m[:, None])
        return torch.cat(parts)


def _inverse(p: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return the tokens (n, k) at the quantiles ``uniforms`` (n, k) of distributions p (n, vocabulary)."""
    cumulative = p.cumsum(dim=-1)
    # rounding may leave the last sum below 1, and no token beyond it may be drawn
    quantiles = uniforms * cumulative[:, -1:]
    return torch.searchsorted(cumulative, quantiles, right=True).clamp_(max=p.shape[1] - 1)
