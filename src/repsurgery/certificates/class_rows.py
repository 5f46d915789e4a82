"""Rows of a class before and after steering, and the statistics that the tests of claims compute from them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Matrix, Vector
from repsurgery.certificates.certificate import Claim
from repsurgery.certificates.evidence import Noise
from repsurgery.certificates.group_rows import centred_by_group, group_gram, scores_by_group, squares_by_group
from repsurgery.moments import Moments

__all__ = [
    "ClassRows",
    "difference",
    "directions_of",
    "energies_of",
    "excess",
    "halves",
    "neighbour_scores",
    "noise_of",
    "noise_of_squares",
    "outer_squares",
    "overfit",
    "quadratic",
    "trimmed",
]

FEW_ROWS = 50
"""With fewer rows of a class, new or fitted, the spread along a direction is unknown: any row might lie along it."""
TRIM = 0.05
"""The share of most influential rows of each class without which evidence on second moments must persist."""
GRAM_ROWS = 500
"""Rows per class from which the number of directions of the noise is estimated."""

Halves = tuple[NDArray[np.intp], NDArray[np.intp]]


@dataclass(frozen=True, slots=True, eq=False)
class ClassRows:
    """Rows of one class before and after steering, centred at their own means.

    Attributes
    ----------
    before, after : (n, d) arrays
        Centred.
    mean_before, mean_after : (d,) arrays
    fitting_rows : float
        How many independent rows of the class the map was fitted on; their sampling error counts like that of these.
    effective : float
        How many independent rows these are worth.
    groups : (n,) integers, or None
        The groups of rows that are not independent; None where every row is its own group.
    """

    before: Matrix
    after: Matrix
    mean_before: Vector
    mean_after: Vector
    fitting_rows: float
    effective: float
    groups: NDArray[np.intp] | None = None

    @classmethod
    def of(
        cls, before: Matrix, after: Matrix, fitting_rows: float, effective: float, groups: NDArray[np.intp] | None
    ) -> "ClassRows":
        """Centre the rows (n, d) before and after steering."""
        m0, m1 = before.mean(axis=0), after.mean(axis=0)
        return cls(before - m0, after - m1, m0, m1, fitting_rows, effective, groups)

    @property
    def units(self) -> int:
        """The number of groups, or of rows where every row is its own group."""
        return len(self.after) if self.groups is None else len(np.unique(self.groups))

    @property
    def fitting_units(self) -> float:
        """The number of such groups that the rows of the fit are worth."""
        return self.fitting_rows if self.groups is None else self.fitting_rows * self.units / self.effective

    @property
    def heaviest(self) -> float:
        """The size of the largest group relative to the mean size."""
        return 1.0 if self.groups is None else float(np.bincount(self.groups).max()) * self.units / len(self.groups)

    def of_groups(self) -> "ClassRows":
        """Return one row per group, with the same means; see `group_rows`."""
        if self.groups is None:
            return self
        before, after = (centred_by_group(X, self.groups) for X in (self.before, self.after))
        return ClassRows(before, after, self.mean_before, self.mean_after, self.fitting_units, float(self.units))

    def by_group(self, scores: Vector, rows: NDArray[np.intp] | None = None) -> Vector:
        """Return the scores of these rows, or of those with the indices ``rows``, summed over groups."""
        if self.groups is None:
            return scores
        return scores_by_group(scores, self.groups if rows is None else self.groups[rows])

    @property
    def few(self) -> bool:
        """Whether these rows, or the rows of the fit, are few."""
        return min(self.units, self.fitting_units) < FEW_ROWS

    @property
    def trace(self) -> float:
        """Tr Σ after steering, with n − 1."""
        return float(np.square(self.after).sum() / (len(self.after) - 1))


def halves(source: ClassRows, target: ClassRows) -> Iterator[tuple[Halves, Halves]]:
    """Yield (learn, test) row indices of both classes, then the same halves exchanged; the split is deterministic.

    A group lies in one half.
    """
    rng = np.random.default_rng(0)
    s, t = (_split(rows, rng) for rows in (source, target))
    yield (s[0], s[1]), (t[0], t[1])
    yield (s[1], s[0]), (t[1], t[0])


def _split(rows: ClassRows, rng: np.random.Generator) -> list[NDArray[np.intp]]:
    if rows.groups is None:
        return np.array_split(rng.permutation(len(rows.after)), 2)
    first = rng.permutation(np.unique(rows.groups))[: (rows.units + 1) // 2]
    in_first = np.isin(rows.groups, first)
    return [np.flatnonzero(in_first), np.flatnonzero(~in_first)]


def difference(scores: Sequence[Vector]) -> float:
    """Return the mean of the source's scores minus that of the target's."""
    return float(scores[0].mean() - scores[1].mean())


def trimmed(scores: Vector) -> Vector:
    """Return the scores without the `TRIM` share that lies furthest from their median."""
    remaining = len(scores) - int(np.ceil(TRIM * len(scores)))
    order = np.argsort(np.abs(scores - np.median(scores)), kind="stable")
    inner: Vector = scores[order[: max(remaining, 2)]]
    return inner


def energies_of(*samples: Matrix) -> list[Vector]:
    """Return ‖x‖² of every row of each sample."""
    return [np.square(X).sum(axis=1) for X in samples]


def quadratic(X: Matrix, C: Matrix) -> Vector:
    """Return xᵀSx per row x, with S = CᵀC / n."""
    if len(C) < C.shape[1]:
        return energies_of(X @ C.T)[0] / len(C)
    values: Vector = np.einsum("ij,ij->i", X @ (C.T @ C / len(C)), X)
    return values


def neighbour_scores(
    energies: Sequence[Vector], gap: Vector, rows: Sequence[ClassRows], per_row: Sequence[float]
) -> list[Vector]:
    """Return scores whose means differ by tr Σ₀ − tr Σ₁ − ‖gap‖², each term without bias."""
    # a sample of one independent row has no spread, whatever its number of rows
    scores = [e * (r.effective / max(r.effective - 1, 1.0)) for e, r in zip(energies, rows, strict=True)]
    sampling = sum(float(s.mean()) * p for s, p in zip(scores, per_row, strict=True))
    scores[0] = scores[0] - max(float(gap @ gap) - sampling, 0.0)
    return [r.by_group(s) for s, r in zip(scores, rows, strict=True)]


def noise_of(
    scores: Sequence[Vector],
    rows: Sequence[ClassRows],
    furthest: float,
    widths: Sequence[float] = (1.0, 1.0),
) -> list[Noise]:
    """Return the noise of the mean score of each class, from one score per group; ``widths`` scale them first."""
    observed = max(w * float(np.abs(s - s.mean()).max()) for s, w in zip(scores, widths, strict=True))
    largest = furthest if any(r.few for r in rows) else observed
    return [Noise.of(w * s, r.fitting_units, largest=largest) for s, r, w in zip(scores, rows, widths, strict=True)]


def noise_of_squares(
    squares: Sequence[Vector],
    rows: Sequence[ClassRows],
    furthest: float,
    widths: Sequence[float] = (1.0, 1.0),
) -> list[Noise]:
    """Return the noise of a norm from the squares of its rows, or groups of rows, class by class."""
    return [
        Noise.of_squares(w**2 * s, r.fitting_units, largest=furthest)
        for s, r, w in zip(squares, rows, widths, strict=True)
    ]


def directions_of(source: ClassRows, target: ClassRows, *, squared: bool = False) -> float:
    """Return (tr V)² / tr V² for the covariance V of the gap of means, or with ``squared`` of the gap of covariances.

    It is 1 where all noise lies along one direction. It is estimated from the Gram matrix of a subset of the rows,
    which can only lower it.
    """
    picked = [_some(r) for r in (source, target)]
    X = np.vstack([r.after[i] for r, i in zip((source, target), picked, strict=True)])
    gram = np.square(X @ X.T) if squared else X @ X.T
    codes = [
        np.arange(len(i)) if r.groups is None else r.groups[i] for r, i in zip((source, target), picked, strict=True)
    ]
    first = len(np.unique(codes[0]))
    if source.groups is not None or target.groups is not None:
        gram = group_gram(gram, np.concatenate([codes[0], codes[1] + codes[0].max() + 1]))
    # centred per class, with the weights that the classes have in V
    ends = [slice(0, first), slice(first, None)]
    weights = np.empty(len(gram))
    for rows, r in zip(ends, (source, target), strict=True):
        gram[rows] -= gram[rows].mean(axis=0)
        gram[:, rows] -= gram[:, rows].mean(axis=1, keepdims=True)
        size = len(r.after) / r.units
        weights[rows] = np.sqrt((1 / r.units + 1 / r.fitting_units) / len(weights[rows])) / size
    gram *= weights
    gram *= weights[:, None]
    square = float(np.square(gram).sum())
    return float(np.trace(gram)) ** 2 / square if square > 0 else 1.0


def _some(rows: ClassRows) -> NDArray[np.intp]:
    """Return the indices of at most `GRAM_ROWS` rows, or of whole groups with about so many rows."""
    if rows.groups is None:
        return np.linspace(0, len(rows.after) - 1, min(len(rows.after), GRAM_ROWS)).astype(np.intp)
    number = max(2, min(rows.units, GRAM_ROWS * rows.units // len(rows.after)))
    chosen = np.unique(rows.groups)[np.linspace(0, rows.units - 1, number).astype(np.intp)]
    return np.flatnonzero(np.isin(rows.groups, chosen))


def outer_squares(rows: ClassRows, energies: Vector, norm: float) -> Vector:
    """Return ‖x xᵀ − S‖²_F of every row, or of the sums over groups, where ``norm`` is ‖S‖²_F."""
    if rows.groups is None:
        return np.maximum(np.square(energies) - norm, 0.0)
    return squares_by_group(rows.after, rows.groups, norm)


def excess(source: ClassRows, target: ClassRows) -> float:
    """Return the factor by which the steered spread counts as noise; 1 unless it is wider than the target's."""
    # if the claim holds, steered and target rows are equally wide; a wider spread must not count as its own noise
    return target.trace / source.trace if source.trace > target.trace > 0 else 1.0


def overfit(claims: Sequence[Claim], target: ClassRows, fitting_rows: float) -> float:
    """Return the relative excess spread, on new rows of the same population, of a map fitted on so few rows.

    W Ŝ Wᵀ = Ŝ₁ holds for the fitted Ŝ = Σ + A, and to second order E tr W Σ Wᵀ / tr Σ₁ = 1 + E‖A‖² / ‖Σ‖²: for a
    full map and normal rows 1 + (d + 1) / n, for one scale per coordinate 1 + 2 / n. The next order is its square.
    """
    squares = np.square(target.after)
    if "covariances" in claims:
        norm = Moments.of(target.after).squared_norm
        fourth = float(np.square(squares.sum(axis=1)).mean()) - norm
    elif "variances" in claims:
        norm = float(np.square(squares.mean(axis=0)).sum())
        fourth = float(np.square(squares).mean(axis=0).sum()) - norm
    else:
        energy = squares.sum(axis=1)
        norm, fourth = float(energy.mean()) ** 2, float(energy.var())
    if fourth <= 0:
        return 0.0
    # the squared norm of a sample's moments is that of the population plus their sampling error
    norm -= fourth / target.effective
    x = fourth / norm / max(fitting_rows, 1) if norm > 0 else np.inf
    return x * (1 + x)
