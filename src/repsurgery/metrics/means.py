"""`Mean`: a weighted mean with access to its rows, which allows sharper intervals and tests."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Matrix, Vector
from repsurgery.errors import ParameterError

__all__ = ["Mean", "as_mean"]


@dataclass(frozen=True, slots=True, eq=False)
class Mean:
    """The mean over rows as a function of row weights: ``weights @ (counts * values) / (weights @ counts)``.

    Parameters
    ----------
    values : (n,) numbers
        One per row; NaN if a row has no value.
    counts : (n,) numbers, optional
        How many observations each value is the mean of; 1 by default, 0 where there is no value.

    Examples
    --------
    >>> import numpy as np
    >>> from repsurgery.metrics import Mean
    >>> Mean([1.0, 4.0, np.nan])(np.array([2.0, 1.0, 5.0]))
    2.0
    """

    values: Vector
    counts: Vector | None = None

    def __post_init__(self) -> None:
        values = np.asarray(self.values, dtype=np.float64)
        counts = np.ones(values.shape) if self.counts is None else np.asarray(self.counts, dtype=np.float64)
        if values.ndim != 1 or counts.shape != values.shape:
            raise ParameterError(
                f"Mean got values of shape {values.shape} and counts of shape {counts.shape}; give one of each per row."
            )
        if np.isinf(values).any() or not np.isfinite(counts).all() or (counts < 0).any():
            raise ParameterError("Mean got an infinite value, or a count that is negative or not finite; drop the row.")
        known = ~np.isnan(values) & (counts > 0)
        object.__setattr__(self, "values", np.where(known, values, 0.0))
        object.__setattr__(self, "counts", np.where(known, counts, 0.0))

    @property
    def weights(self) -> Vector:
        """The counts (n,), 0 for rows without a value."""
        assert self.counts is not None
        return self.counts

    @property
    def rows(self) -> Vector:
        """The contribution of each row (n,), which is its value if counts are equal; 0 for rows without a value."""
        known = self.weights > 0
        return self.weights * self.values / (self.weights[known].mean() if known.any() else 1.0)

    @property
    def is_share(self) -> bool:
        """Whether this mean is the share of known rows with the value 1, all others having 0."""
        return bool(np.isin(self.values, (0.0, 1.0)).all() and np.isin(self.weights, (0.0, 1.0)).all())

    def __call__(self, weights: Vector) -> float:
        """Return the mean of rows drawn ``weights`` (n,) times; NaN if none has a value."""
        return float(self.drawn(weights[None])[0])

    def drawn(self, weights: Matrix) -> Vector:
        """Return the mean of each of r resamples with weights (r, n); NaN if no row with a value was drawn."""
        below = weights @ self.weights
        above = weights @ (self.weights * self.values)
        means: Vector = np.divide(above, below, out=np.full(len(below), np.nan), where=below > 0)
        return means

    def left_out(self, blocks: NDArray[np.intp]) -> Vector:
        """Return the mean without each block of rows, from the starts of the blocks; NaN if nothing remains."""
        totals, counts = self.weights * self.values, self.weights
        below = counts.sum() - np.add.reduceat(counts, blocks)
        above = totals.sum() - np.add.reduceat(totals, blocks)
        means: Vector = np.divide(above, below, out=np.full(len(blocks), np.nan), where=below > 0)
        return means


def as_mean(value: float, left_out: Vector, weights: Matrix, drawn: Vector) -> Mean | None:
    """Return a statistic as a mean over all rows if it equals one on every resample; None otherwise.

    The rows of a mean f follow from leaving each out: x_i = n f(1) − (n − 1) f(1 − e_i). The statistic is a mean if the
    mean of these rows equals it on every resample.

    Parameters
    ----------
    value : float
        The statistic on the original rows.
    left_out : (n,) array
        The statistic without each row.
    weights, drawn : (r, n) and (r,) arrays
        Resamples, and the statistic on them.
    """
    n = len(left_out)
    values = np.full(1, value) if n == 1 else n * value - (n - 1) * left_out
    if not (np.isfinite(values).all() and np.isfinite(drawn).all()):
        return None
    tolerance = 1e-14 * n * max(abs(value), float(np.abs(drawn).max()), float(np.abs(values).max()))
    # values that are 0 or 1 up to rounding belong to a share
    for whole in (0.0, 1.0):
        values[np.abs(values - whole) <= tolerance] = whole
    mean = Mean(values)
    return mean if (np.abs(mean.drawn(weights) - drawn) <= tolerance).all() else None
