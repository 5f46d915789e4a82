"""Shrinkage of a covariance towards a multiple of the identity, or towards the pooled covariance, by name.

Each shrinkage has the form Σ̃ = keep · Σ + floor · I + share · Σ_p. A few numbers per class describe it, and the
certificate states exactly how far it takes a map from the unshrunk target (`moved` where nothing is pooled).

To add a shrinkage, write a function here and register it. Its parameters name what it reads: ``moments`` (the `Moments`
of one class, or of all rows), ``ridge`` and ``alpha`` (the estimator's parameters), ``rows`` (n, d), which only `fit`
can offer, and ``pooled`` (moments with the covariance Σ_p), which exists only where classes are shrunk together.
"""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Label, Matrix, Rows, Vector
from repsurgery.errors import OptionsError, ParameterError, RowsNeededError
from repsurgery.moments.by_class import ClassMoments
from repsurgery.moments.moments import Moments
from repsurgery.moments.pooled import pool, supported_alpha
from repsurgery.registry import Registry, call_reading, reads

__all__ = [
    "NO_SHRINKAGE",
    "SHRINKAGES",
    "Alpha",
    "FitRows",
    "Shrinkage",
    "alpha_read",
    "check_shrinkage",
    "moved",
    "parse_alpha",
    "ridge_read",
    "shrink",
    "shrink_classes",
    "shrunk_covariance",
]


Alpha = float | Literal["auto"]
"""How far "pooled" draws a covariance towards the pooled one: from 0 to 1, or "auto" to let the moments decide."""


@dataclass(frozen=True, slots=True)
class Shrinkage:
    """Σ̃ = ``keep`` · Σ + ``floor`` · I + ``share`` · Σ_p, where Σ_p is the covariance of ``pooled``."""

    keep: float = 1.0
    floor: float = 0.0
    share: float = 0.0
    pooled: Moments | None = None


NO_SHRINKAGE = Shrinkage()
SHRINKAGES: Registry[Callable[..., Shrinkage]] = Registry("shrinkage", home=__name__)


@SHRINKAGES.register("none")
def no_shrinkage() -> Shrinkage:
    """Σ itself."""
    return NO_SHRINKAGE


@SHRINKAGES.register("ridge")
def absolute_ridge(ridge: float) -> Shrinkage:
    """Σ + ridge · I, as in the paper's experiments and POT's ``reg``."""
    return Shrinkage(1.0, ridge)


@SHRINKAGES.register("relative-ridge")
def relative_ridge(moments: Moments, ridge: float) -> Shrinkage:
    """Σ + ridge · (tr Σ / d) · I: the same choice at every scale of the data."""
    return Shrinkage(1.0, ridge * moments.trace / moments.dim)


@SHRINKAGES.register("oas")
def oas(moments: Moments) -> Shrinkage:
    """Oracle approximating shrinkage (Chen et al. 2010, eq. 23) as scikit-learn computes it."""
    n, dim = moments.weight, moments.dim
    alpha, mu = moments.squared_norm / dim**2, moments.trace / dim
    numerator = alpha + mu**2
    denominator = (n + 1.0) * (alpha - mu**2 / dim)
    return _towards_identity(1.0 if denominator <= 0 else min(numerator / denominator, 1.0), moments)


@SHRINKAGES.register("ledoit-wolf")
def ledoit_wolf(moments: Moments, rows: Rows) -> Shrinkage:
    """Ledoit and Wolf (2004) by scikit-learn; it needs sums of fourth order, which moments do not hold."""
    from sklearn.covariance import ledoit_wolf_shrinkage

    return _towards_identity(float(ledoit_wolf_shrinkage(rows.astype(np.float64))), moments)


@SHRINKAGES.register("pooled")
def towards_pooled(moments: Moments, pooled: Moments, alpha: Alpha) -> Shrinkage:
    """(1 − α) Σ + α Σ_p: with α = 1 all classes have one covariance, and no direction is stretched."""
    share = supported_alpha(moments, pooled) if alpha == "auto" else float(alpha)
    return Shrinkage(1.0 - share, 0.0, share, pooled)


def _towards_identity(alpha: float, moments: Moments) -> Shrinkage:
    """(1 − α) Σ + α (tr Σ / d) I."""
    if 1.0 - alpha < 16 * np.finfo(np.float64).eps:  # the rounding of α = 1
        alpha = 1.0
    return Shrinkage(1.0 - alpha, alpha * moments.trace / moments.dim)


class FitRows:
    """The rows of one `fit` call, for gates, shrinkages and measurements that moments are not enough for."""

    def __init__(
        self,
        X: Rows,
        codes: NDArray[np.intp],
        labels: list[Label],
        weights: Vector | None,
        groups: NDArray[np.intp] | None = None,
    ) -> None:
        self.X, self.codes, self.labels, self.weights, self.groups = X, codes, labels, weights, groups
        self.concept: Matrix | None = None

    def subset(self, picked: NDArray[Any]) -> "FitRows":
        """Return some of the rows, by index or mask."""
        weights, groups = (None if part is None else part[picked] for part in (self.weights, self.groups))
        return FitRows(self.X[picked], self.codes[picked], self.labels, weights, groups)

    def counted(self) -> "FitRows":
        """Return the rows whose weight is not zero; the others may hold anything, NaN included."""
        return self if self.weights is None else self.subset(self.weights > 0)

    def of(self, label: Label | None) -> Rows:
        """Return the rows of one class; of None, all rows."""
        rows: Rows = self.X if label is None else self.X[self.codes == self.labels.index(label)]
        return rows


def check_shrinkage(name: str, ridge: Any, alpha: Any = "auto") -> None:
    """Raise `ParameterError` for an unknown name, a ridge that is not a finite number >= 0, or a wrong alpha."""
    function = SHRINKAGES[name]
    if isinstance(ridge, bool) or not isinstance(ridge, Real) or not 0 <= float(ridge) < np.inf:
        raise ParameterError(f"ridge is {ridge!r}; it must be a finite number >= 0.")
    if isinstance(alpha, str) and alpha == "auto":
        return
    if isinstance(alpha, bool) or not isinstance(alpha, Real) or not 0 <= float(alpha) <= 1:
        raise ParameterError(f"alpha is {alpha!r}; it must be 'auto' or a number from 0 to 1.")
    if "alpha" not in reads(function):
        readers = ", ".join(f"shrinkage={known!r}" for known in SHRINKAGES if "alpha" in reads(SHRINKAGES[known]))
        raise OptionsError(
            f"alpha is {alpha!r}, and shrinkage={name!r} does not read it. Leave alpha out, or choose {readers}."
        )


def parse_alpha(text: str) -> Any:
    """Return the number that ``text`` spells, or ``text`` itself; `check_shrinkage` judges the result."""
    try:
        return float(text)
    except ValueError:
        return text


def ridge_read(name: str, ridge: float) -> float | None:
    """Return ``ridge`` where the shrinkage ``name`` reads it, else None."""
    return float(ridge) if "ridge" in reads(SHRINKAGES[name]) else None


def alpha_read(name: str, alpha: Alpha) -> Alpha | None:
    """Return ``alpha`` where the shrinkage ``name`` reads it, else None."""
    if "alpha" not in reads(SHRINKAGES[name]):
        return None
    return "auto" if alpha == "auto" else float(alpha)


def shrink(
    name: str,
    ridge: float,
    m: Moments,
    rows: FitRows | None,
    label: Label | None = None,
    *,
    alpha: Alpha = "auto",
    pooled: Moments | None = None,
) -> Shrinkage:
    """Return the shrinkage called ``name`` for the moments ``m`` of the class ``label``; None stands for all rows.

    ``pooled`` are moments with the covariance Σ_p, where there are other classes to pool with.
    """
    function, own_rows = SHRINKAGES[name], None
    if "rows" in reads(function):
        if rows is None or rows.weights is not None:
            raise RowsNeededError(
                f"shrinkage={name!r} needs unweighted rows, and moments do not hold them. Call fit(X, z) without "
                f"weights, or choose a shrinkage that reads moments: {', '.join(map(repr, _from_moments()))}."
            )
        own_rows = rows.of(label)
    if pooled is None and "pooled" in reads(function):
        raise ParameterError(
            f"shrinkage={name!r} draws the covariances of a source and a target class together, and here there is no "
            f"such pair. Choose one of {', '.join(repr(known) for known in SHRINKAGES if not _pools(known))}."
        )
    return call_reading(function, moments=m, ridge=ridge, rows=own_rows, alpha=alpha, pooled=pooled)


def _pools(name: str) -> bool:
    return "pooled" in reads(SHRINKAGES[name])


def _from_moments() -> list[str]:
    return [name for name in SHRINKAGES if "rows" not in reads(SHRINKAGES[name])]


def shrink_classes(
    name: str, ridge: float, moments: ClassMoments, rows: FitRows | None, *, alpha: Alpha | None = None
) -> dict[Label, Shrinkage]:
    """Return the shrinkage of each class; with an ``alpha``, it may draw all these classes together."""
    pooled = pool(moments.values()) if alpha is not None and _pools(name) else None
    options: dict[str, Any] = {"pooled": pooled, "alpha": "auto" if alpha is None else alpha}
    return {label: shrink(name, ridge, m, rows, label, **options) for label, m in moments.items()}


def shrunk_covariance(m: Moments, s: Shrinkage) -> Matrix:
    """Return keep · Σ + floor · I + share · Σ_p as a new (d, d) array."""
    S = m.scatter * (s.keep / m.weight)
    if s.pooled is not None:
        S += s.pooled.scatter * (s.share / s.pooled.weight)
    S[np.diag_indices_from(S)] += s.floor
    return S


def moved(W: Matrix, S1: Matrix, s0: Shrinkage, s1: Shrinkage) -> float:
    """Return ‖W Σ₀ Wᵀ − Σ₁‖_F as the ridge identity gives it, for W that is exact between the shrunk covariances.

    W (a₀Σ₀ + c₀I) Wᵀ = a₁Σ₁ + c₁I leaves W Σ₀ Wᵀ − Σ₁ = [(a₁ − a₀) Σ₁ + c₁ I − c₀ W Wᵀ] / a₀. It holds where nothing
    is pooled; `TowardTarget` measures the gap that a pooled covariance leaves.
    """
    if s0 == s1 == NO_SHRINKAGE:
        return 0.0
    if s0.keep == 0:
        return float("inf")
    residual = (s1.keep - s0.keep) * S1 - s0.floor * (W @ W.T)
    residual[np.diag_indices_from(residual)] += s1.floor
    return float(np.linalg.norm(residual) / s0.keep)
