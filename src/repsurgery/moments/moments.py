"""`Moments`: count, weight, mean and scatter of one set of rows; two of them merge exactly."""

import os
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from repsurgery.arrays import Matrix, Rows, Vector, check_groups, check_rows, check_weights, freeze
from repsurgery.cards import Card, Shown
from repsurgery.errors import ParameterError, SketchError
from repsurgery.files import read_file, write_file
from repsurgery.linalg.spectrum import cholesky_or_none, rank_tolerance
from repsurgery.linalg.transport import Range, factor_range, symmetric_range
from repsurgery.moments.accumulate import Centre, factor_of, judged_dtype, require_equal, scatter_of
from repsurgery.moments.checks import Precision, require_comparable_weights, require_consistent, require_scale
from repsurgery.moments.combine import added, removed, warn_of_repetition
from repsurgery.moments.groups import Groups, groups_of
from repsurgery.moments.ledger import Ledger, Part
from repsurgery.moments.shown import moments_card
from repsurgery.moments.sketch import Sketch, weighted_sizes

__all__ = ["Moments", "Precision"]


@dataclass(frozen=True, slots=True, eq=False)
class Moments(Shown):
    """Sufficient statistics of a set of rows: all that fitting a map needs, without the rows themselves.

    Attributes
    ----------
    count : int
        The number of rows.
    weight : float
        Their total weight; equal to ``count`` without sample weights.
    mean : (d,) array
    dense : (d, d) array, or None
        Σ w (x − mean)(x − mean)ᵀ, used from ``count >= d`` rows on.
    factor : (m, d) array, or None
        Upper trapezoidal R with RᵀR = scatter, used below d rows: exact and cheap, and never the rows themselves.
    dtype : str
        The coarsest dtype of the rows; it determines the tolerance of numerical ranks.
    precision : str
        ``"float64"``, or ``"float32-products"`` where any block was multiplied in float32.
    residue : (d,) array
        The rounding error of the mean: mean + residue has twice the digits, so that merging loses none.
    groups : Groups or None
        Groups of rows that are not independent, such as the tokens of one text; None where every row is its own group.
        A group lies within one call: where two calls or two machines add rows of one group, it counts as two.
    sketch : Sketch or None
        An independent count of the same rows; None where the moments were derived, or come from a file of version 0.1.
    ledger : Ledger or None
        The parts that were counted, each with a digest of its content; None as above.

    Guarantees
    ----------
    They are right for every arrangement of dependent columns, above and below d rows
    (test_moments_are_those_of_two_passes_on_structured_rows).
    Splitting or reordering the rows changes nothing beyond rounding
    (test_splitting_the_rows_never_changes_their_moments).
    An offset of 1e6 costs no digits of the scatter, merged or not (test_an_offset_of_a_million_costs_no_digits).
    a + b - b is a, to rounding of the scatter (test_removing_rows_undoes_adding_them).
    Groups of one row each change no bit (test_groups_of_one_row_change_no_bit).
    """

    count: int
    weight: float
    mean: Vector
    dense: Matrix | None
    factor: Matrix | None
    dtype: str = "float64"
    precision: Precision = "float64"
    residue: Vector | None = None
    groups: Groups | None = None
    sketch: Sketch | None = None
    ledger: Ledger | None = None

    def __post_init__(self) -> None:
        if self.residue is None:
            object.__setattr__(self, "residue", np.zeros_like(self.mean))
        require_consistent(self)
        for name in ("mean", "dense", "factor", "residue"):
            array = getattr(self, name)
            if array is not None:
                object.__setattr__(self, name, freeze(array))

    @classmethod
    def of(
        cls, X: Any, *, sample_weight: Any = None, precision: Precision = "float64", groups: Any = None
    ) -> "Moments":
        """Return the moments of rows ``X`` (n, d); a weight of 2 counts a row twice.

        ``groups`` (n,) labels rows that are not independent, such as the tokens of one text.
        """
        X = check_rows(X, caller="Moments.of")
        w = check_weights(sample_weight, len(X), caller="Moments.of")
        codes = check_groups(groups, len(X), caller="Moments.of")
        return cls.of_rows(X, np.arange(len(X)), w, precision, codes)

    @classmethod
    def of_rows(
        cls, X: Rows, rows: Any, w: Vector | None, precision: Precision, groups: NDArray[np.intp] | None = None
    ) -> "Moments":
        """Return the moments of the rows of checked data with indices ``rows``; rows of weight zero do not count."""
        if precision not in get_args(Precision):
            raise ParameterError(f"precision is {precision!r}; it must be one of {list(get_args(Precision))}.")
        if w is not None:
            rows = rows[w[rows] > 0]
        d = X.shape[1]
        if len(rows) == 0:
            return cls.empty(d)
        if w is not None:
            require_comparable_weights(float(w[rows].min()), float(w[rows].max()))
        weight = float(len(rows)) if w is None else float(w[rows].sum())
        dtype = judged_dtype(X)
        if len(rows) < d:
            (mean, residue), R, sketch = factor_of(X, rows, w)
            moments = cls(len(rows), weight, mean, None, R, dtype, residue=residue)
        else:
            float32_products = precision == "float32-products"
            (mean, residue), S, sketch = scatter_of(X, rows, w, float32_products=float32_products)
            moments = cls(len(rows), weight, mean, S, None, dtype, precision, residue)
        if not moments.variance.any():
            require_equal(X, rows)
        if groups is not None:
            moments = moments.with_groups(groups_of(X, rows, groups, w, mean))
            sketch = sketch.with_groups(weighted_sizes(groups[rows], None if w is None else w[rows]))
        return moments.counted_by(sketch)

    def counted_by(self, sketch: Sketch) -> "Moments":
        """Return these moments with the sketch of the same rows and a ledger of this one part, after comparing them."""
        sketch.require_agreement(self)
        ledger = Ledger((Part(sketch.digest(), self.count, float(self.weight)),))
        return replace(self, sketch=sketch, ledger=ledger)

    def derived(self, **changes: Any) -> "Moments":
        """Return these moments with some fields replaced, and without sketch and ledger: no rows have them."""
        return replace(self, **changes, sketch=None, ledger=None)

    def check_sketch(self) -> None:
        """Raise `SketchError` or `LedgerError` where these moments are not what their sketch and ledger counted.

        It is called when moments are finished, loaded, and fitted from. Moments with neither of them pass.
        """
        if self.sketch is not None:
            self.sketch.require_agreement(self)
        if self.ledger is not None:
            if self.sketch is None:
                raise SketchError(
                    "These moments have a ledger of their parts, and no sketch: it was taken away. Count the rows "
                    "again, or load the original file."
                )
            self.ledger.require_total(self.count, self.weight)

    def with_groups(self, groups: Groups | None) -> "Moments":
        """Return these moments with ``groups``, or with None where each row is its own group."""
        groups = None if groups is None or groups.are_single(self.weight) else groups
        stated = None if groups is None else (groups.count, groups.squares)
        return replace(self, groups=groups, sketch=self.sketch and self.sketch.with_groups(stated))

    def require_scale(self) -> None:
        """Raise `DataError` where means or standard deviations are too small or too large for fitting a map."""
        spread = float(np.sqrt(self.variance.max(initial=0.0)))
        require_scale(float(np.abs(self.mean).max(initial=0.0)), spread)

    @classmethod
    def empty(cls, dim: int) -> "Moments":
        """Return the moments of no rows, the neutral element of ``+``."""
        return cls(0, 0.0, np.zeros(dim), None, np.zeros((0, dim)), sketch=Sketch.empty(dim), ledger=Ledger())

    @property
    def dim(self) -> int:
        """The number of features d."""
        return len(self.mean)

    @property
    def centre(self) -> Centre:
        """The mean and its residue."""
        assert self.residue is not None
        return self.mean, self.residue

    @property
    def scatter(self) -> Matrix:
        """Σ w (x − mean)(x − mean)ᵀ, shape (d, d)."""
        if self.dense is not None:
            return self.dense
        assert self.factor is not None
        return self.factor.T @ self.factor

    @property
    def covariance(self) -> Matrix:
        """The 1/n covariance, shape (d, d)."""
        return self.scatter / self.weight

    @property
    def variance(self) -> Vector:
        """The diagonal of the covariance, shape (d,)."""
        if self.factor is None:
            return np.diagonal(self.scatter) / self.weight
        sums: Vector = np.square(self.factor).sum(axis=0)
        return sums / self.weight

    @property
    def trace(self) -> float:
        """Tr Σ, the mean squared distance from the mean."""
        return float(self.variance.sum())

    @property
    def effective_count(self) -> float:
        """The number of independent rows that these are worth, n_eff = n / (1 + (Σ m_g² / n − 1) ρ).

        n is the number of rows, with weights their sum; ρ is the correlation within groups, see `moments.groups`.
        """
        n = float(self.weight)
        return n if self.groups is None else self.groups.effective_count(n, self.trace * n)

    def all_groups(self) -> Groups:
        """Return the groups; rows for which none were given count as groups of one row."""
        return self.groups or Groups.alone(float(self.weight), self.trace * self.weight)

    @property
    def squared_norm(self) -> float:
        """‖Σ‖²_F."""
        S = self.scatter if self.factor is None else self.factor @ self.factor.T
        return float(np.linalg.norm(S) ** 2 / self.weight**2)

    @property
    def rank_tolerance(self) -> float:
        """The relative singular value below which a direction counts as absent from the data."""
        return rank_tolerance(self.dtype, self.dim, from_scatter=self.dense is not None)

    @property
    def rounding(self) -> Vector:
        """About how far (d,) the numbers of each column are rounded in rows of this dtype."""
        rounded: Vector = float(np.finfo(self.dtype).eps) * np.abs(self.mean)
        return rounded

    def least_spread(self) -> Vector:
        """Return the standard deviation (d,) up to which each column counts as constant.

        It is what rounding can cause in rows of this dtype: within the rounding of the column's own mean, and within
        the rounding of states as large as those of the widest column, because a model adds and multiplies all of them.

        Guarantees
        ----------
        No column of rounding noise is amplified (test_noise_within_the_precision_of_the_rows_is_not_amplified).
        """
        spread = float(np.sqrt(self.variance.max(initial=0.0)))
        eps = float(np.finfo(self.dtype).eps)
        beside = eps if self.dtype == "float64" else rank_tolerance(self.dtype, 1, from_scatter=False)
        return np.maximum(self.rounding, beside * spread)

    def hardly_varying(self, share: float = 0.0) -> str:
        """Return words that name the columns within `least_spread`, or within this ``share`` of the widest; or ""."""
        spread = np.sqrt(self.variance)
        found = np.flatnonzero(spread <= np.maximum(self.least_spread(), share * spread.max(initial=0.0)))
        if not len(found):
            return ""
        names = ", ".join(map(str, found[:5])) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
        have = "feature {} has" if len(found) == 1 else "features {} have"
        widest = f"{spread[found].max():.2g} beside {spread.max():.2g}"
        return f"{have.format(names)} a standard deviation of at most {widest}"

    def root(self) -> Matrix:
        """Return R (m, d) with RᵀR = Σ: the factor, a Cholesky factor, or one computed from eigenvectors.

        Every column keeps its variance, whatever the scale of the others
        (test_the_root_keeps_the_variance_of_every_column).
        """
        if self.factor is not None:
            return self.factor / float(np.sqrt(max(self.weight, 1e-300)))
        R = cholesky_or_none(self.covariance, overwrite=True)
        return R if R is not None else self._range_rows()

    def _range_rows(self) -> Matrix:
        # in units of the columns, so that one that varies little beside a wide one keeps its spread
        S = self.covariance
        scale = np.sqrt(np.maximum(np.diagonal(S), 0.0))
        unit = np.where(scale > 0, scale, 1.0)
        span = symmetric_range(S / unit / unit[:, None], self.rank_tolerance)
        rows: Matrix = span.scale[:, None] * span.basis.T * scale
        return rows

    def range(self) -> Range:
        """Return the numerical range of Σ: an orthonormal basis (d, r) and its scales (r,)."""
        if self.factor is not None:
            return factor_range(self.root(), self.rank_tolerance)
        return symmetric_range(self.covariance, self.rank_tolerance)

    def update(
        self, X: Any, *, sample_weight: Any = None, precision: Precision | None = None, groups: Any = None
    ) -> "Moments":
        """Return these moments with the rows of ``X`` added; ``self`` does not change.

        A group must lie within one call: the same label in two calls stands for two groups.
        """
        X = check_rows(X, dim=self.dim, caller="Moments.update")
        return self + Moments.of(X, sample_weight=sample_weight, precision=precision or self.precision, groups=groups)

    def _card(self) -> Card:
        return moments_card(self)

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the eigenvalues of the covariance, and return the axes.

        Drawing needs ``pip install 'repsurgery[report]'``. ``ax`` are axes of matplotlib; None makes a new figure.
        """
        from repsurgery.pictures.spectrum import draw_spectra

        return draw_spectra({"": self.spectrum()}, title=self._card().title, ylabel="variance", ax=ax)

    def spectrum(self) -> Vector:
        """Return the eigenvalues of the covariance (d,), from the largest to the smallest; O(d³) work."""
        if self.factor is not None:
            found = np.square(linalg.svdvals(self.root())) if len(self.factor) else np.zeros(0)
            return np.concatenate([found, np.zeros(self.dim - len(found))])
        values: Vector = linalg.eigvalsh(self.covariance)[::-1]
        return np.maximum(values, 0.0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write these moments to one file; they hold no rows."""
        from repsurgery.moments.by_class import single_to_contents

        write_file(path, single_to_contents(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Moments":
        """Read moments written by `save`, checking digest, shapes and values."""
        from repsurgery.moments.by_class import SINGLE, single_from_contents

        return single_from_contents(read_file(path, kind=SINGLE))

    def __add__(self, other: "Moments") -> "Moments":
        """Return the moments of the rows of both; a part that both hold is counted twice, and warned of."""
        if not isinstance(other, Moments):
            return NotImplemented
        warn_of_repetition(self, other)
        return added(self, other)

    def __sub__(self, other: "Moments") -> "Moments":
        """Remove rows that were added before: exact unlearning of those rows."""
        return removed(self, other) if isinstance(other, Moments) else NotImplemented
