"""`Fisher`: the Fisher matrix of next-token distributions at a site, which prices a displacement in nats."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from repsurgery.arrays import Matrix, Rows, check_rows, freeze, row_blocks
from repsurgery.cards import Card, Shown
from repsurgery.errors import DataError, ParameterError, ShapeError
from repsurgery.files import Contents, built_from, read_file, write_file
from repsurgery.origin import ChosenStrength, finite_strength
from repsurgery.price.displacement import parts_of, quadratic
from repsurgery.price.shown import fisher_card

__all__ = ["Fisher", "budget_strength", "check_budget"]

KIND = "fisher"
ASYMMETRY = 1e-6
"""Rounding leaves the two halves of a matrix that was summed in float64 far closer than this, relative to its trace."""


@dataclass(frozen=True, slots=True, eq=False)
class Fisher(Shown):
    """The mean Fisher information of the next-token distributions, in a shift of the states at one site.

    F = E[Jᵀ(diag p − ppᵀ)J], where J maps a shift of all states at the site to the change of the logits at a position.
    A shift by δ then costs KL(base ‖ shifted) ≈ ½ δᵀFδ nats per token. ``a + b`` merges two matrices of one site.

    Attributes
    ----------
    count : int
        The number of positions over which ``matrix`` is the mean.
    matrix : (d, d) float64 array
        Symmetric and positive semidefinite.
    samples : int
        Tokens drawn per position; 0 where the matrix is exact.
    positions : {"all", "generated"}
        Which positions were shifted; see `lm.fisher`.

    Guarantees
    ----------
    A budget for other positions is refused (test_a_budget_is_priced_at_the_positions_that_are_steered).
    Merging parts equals reading everything at once (test_merged_matrices_are_those_of_all_texts).
    """

    count: int
    matrix: Matrix
    samples: int = 0
    positions: str = "all"

    def __post_init__(self) -> None:
        F = np.array(self.matrix, dtype=np.float64)
        if F.ndim != 2 or F.shape[0] != F.shape[1] or not F.size:
            raise ShapeError(f"A Fisher matrix has shape (d, d), not {F.shape}.")
        if type(self.count) is not int or self.count < 1 or type(self.samples) is not int or self.samples < 0:
            raise DataError(f"A Fisher matrix of {self.count!r} positions and {self.samples!r} samples cannot exist.")
        if self.positions not in ("all", "generated"):
            raise DataError(f"A Fisher matrix shifts positions 'all' or 'generated', not {self.positions!r}.")
        trace = float(np.trace(F))
        if not np.isfinite(F).all() or trace < 0 or np.abs(F - F.T).max() > ASYMMETRY * max(trace, 1e-300):
            raise DataError("A Fisher matrix is finite, symmetric and has a trace of at least 0. Compute it again.")
        object.__setattr__(self, "matrix", freeze((F + F.T) / 2))

    @property
    def dim(self) -> int:
        """The number of features d."""
        return len(self.matrix)

    def kl(self, steering: Any, moments: Any = None, *, share: Any = None, strength: float = 1.0) -> float:
        """Return the predicted KL(base ‖ steered) in nats per token: ½ E‖F^½(Wh + b − h)‖².

        The displacement is proportional to the strength, so the prediction is proportional to its square.

        Parameters
        ----------
        steering : fitted estimator, SteeringFunction or AffineMap
        moments : Moments, ClassMoments or None
            The moments of all positions, which every map but a shift needs; class moments are summed. Of a gated
            function: those of the positions that its gate selects, as class moments by label if it has several maps.
        share : float, mapping of label to float, or None
            The share of the gated positions among all of them; a gated function needs it.
        strength : float

        Notes
        -----
        This is the second-order expansion. It ignores that the Fisher information and the displacement depend on the
        same vector, and, below "final", that displacements differ between positions.

        Guarantees
        ----------
        Equal to the mean over rows (test_the_price_from_moments_is_the_mean_over_rows).
        A gated function without moments and share is refused (test_a_gated_function_needs_moments_and_share).
        """
        parts = parts_of(steering, moments, share)
        whole = sum(weight * quadratic(self.matrix, m, held) for m, held, weight in parts)
        return 0.5 * finite_strength(strength) ** 2 * max(whole, 0.0)

    def kl_on(self, function: Callable[[Any], Rows], X: Any) -> float:
        """Return the predicted KL(base ‖ steered) of any function of rows, as the mean over the rows ``X`` (n, d).

        Guarantees
        ----------
        Of an affine map, equal to `kl` (test_the_price_from_moments_is_the_mean_over_rows).
        """
        rows = check_rows(X, dim=self.dim, caller="kl_on")
        total = 0.0
        for block in row_blocks(*rows.shape):
            moved = np.asarray(function(rows[block]), dtype=np.float64) - rows[block]
            total += float(np.einsum("ij,ij->", moved @ self.matrix, moved))
        return 0.5 * total / len(rows)

    def strength(self, steering: Any, kl_budget: float, moments: Any = None, *, share: Any = None) -> float:
        """Return the strength at which ``steering`` is predicted to cost ``kl_budget`` nats per token; see `kl`."""
        return budget_strength(kl_budget, self.kl(steering, moments, share=share))

    def __add__(self, other: "Fisher") -> "Fisher":
        if not isinstance(other, Fisher):
            return NotImplemented
        if self.dim != other.dim:
            raise ShapeError(f"Fisher matrices of {self.dim} and {other.dim} features do not belong to one site.")
        if self.positions != other.positions:
            raise DataError(
                f"Matrices of positions {self.positions!r} and {other.positions!r} have no sum. Measure both alike."
            )
        count = self.count + other.count
        matrix = (self.count / count) * self.matrix + (other.count / count) * other.matrix
        drawn = [fisher.samples for fisher in (self, other) if fisher.samples]
        return Fisher(count, matrix, min(drawn, default=0), self.positions)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write this matrix to one file."""
        write_file(path, to_contents(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Fisher":
        """Read a matrix written by `save`, checking digest, shape and values."""
        return from_contents(read_file(path, kind=KIND))

    def _card(self) -> Card:
        return fisher_card(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Fisher, (self.count, np.array(self.matrix), self.samples, self.positions)


def check_budget(kl_budget: Any) -> float:
    """Return ``kl_budget`` as a float; raise a `ParameterError` unless it is a finite number of nats above 0."""
    if isinstance(kl_budget, bool) or not isinstance(kl_budget, Real) or not 0 < float(kl_budget) < math.inf:
        raise ParameterError(
            f"kl_budget is {kl_budget!r}; it must be a positive number of nats per token, such as 0.1."
        )
    return float(kl_budget)


def budget_strength(kl_budget: Any, kl: float) -> float:
    """Return the strength that costs ``kl_budget`` where strength 1 costs ``kl``."""
    budget = check_budget(kl_budget)
    if not kl > 0:
        raise ParameterError(
            f"This steering is predicted to cost {kl:g} nats per token at strength 1, so no strength reaches "
            f"kl_budget={budget:g}. Check that it changes vectors, and that the Fisher matrix is that of its site."
        )
    return ChosenStrength(math.sqrt(budget / kl))


def to_contents(fisher: Fisher) -> Contents:
    """Return the file form of ``fisher``."""
    header = {"count": fisher.count, "samples": fisher.samples, "positions": fisher.positions}
    return Contents(KIND, header, {"matrix": fisher.matrix})


def from_contents(contents: Contents) -> Fisher:
    """Return the matrix from the contents of a file, after checking it."""
    with built_from("a Fisher matrix"):
        matrix = contents.arrays["matrix"]
        header = contents.header
        return Fisher(header["count"], matrix, header["samples"], header.get("positions", "all"))
