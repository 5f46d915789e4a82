"""The figures of a certificate, measured on the rows of a fit by formulas that share nothing with `moments`.

Where a class has few rows, each of them is steered and all figures follow from the results. Where it has many, the
figures come from the moments, which are then checked on all rows along the sketch's directions v, pulled back through
the map: (Wᵀv)ᵀh must have the mean and the variance that the moments state. A few rows are steered one by one as well.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.affine import AffineMap
from repsurgery.arrays import Label, Matrix, Rows, Vector, row_blocks
from repsurgery.certificates.certificate import Certificate, PairRecord, summarise
from repsurgery.certificates.continuous import ContinuousCertificate
from repsurgery.errors import CertificateError
from repsurgery.moments import ClassMoments, Moments
from repsurgery.moments.shrinkage import FitRows
from repsurgery.moments.sketch import TOLERANCES, directions

__all__ = ["columns_on_rows", "gaps_between", "measured_on_rows", "most_rows"]

MOST_ROWS = 4096
FEWEST_ROWS = 64
PRODUCTS = 1e8
"""So many products with a matrix (d, d) are spent on the rows that are steered one by one: a few percent of a fit."""
EXACT = 1e-10
"""A difference of Gram matrices whose square is below this share has lost its digits; then directions measure it."""
AGREEMENT = 1e-9


def most_rows(d: int) -> int:
    """Return how many rows of a class are steered one by one: at most 4,096, and fewer in more than 156 dimensions."""
    return int(np.clip(PRODUCTS / d**2, FEWEST_ROWS, MOST_ROWS))


def measured_on_rows(
    certificate: Certificate,
    maps: Mapping[Label | None, AffineMap],
    rows: FitRows,
    moments: ClassMoments,
    *,
    most: int | None = None,
) -> Certificate:
    """Return ``certificate``, which was issued on ``moments``, with the figures that these rows show.

    ``most`` is the number of rows up to which every row of a class is steered; None leaves it to `most_rows`.

    Raises
    ------
    CertificateError
        The rows contradict the moments.
    """
    d = rows.X.shape[1]
    limit = most_rows(d) if most is None else most

    def map_of(label: Label) -> AffineMap:
        return maps[label if label in maps else None]

    @cache
    def steered(label: Label) -> "_Steered":
        return _Steered.of(rows, label, map_of(label), limit)

    @cache
    def unsteered(label: Label) -> "_Steered":
        return _Steered.of(rows, label, None, limit)

    both = certificate.population == "all"
    records = {}
    for label, record in certificate.by_source.items():
        source = steered(label)
        target = steered(record.target) if both else unsteered(record.target)
        stated: dict[str, Any] = {"measured_source": len(source.after), "measured_target": len(target.after)}
        if source.whole and target.whole:
            before = gaps_between(source.before, source.weights, target.before, target.weights)
            stated |= {f"{name}_before": before[name] for name in ("mean_gap", "covariance_gap", "ebbn")}
            stated |= gaps_between(source.after, source.weights, target.after, target.weights)
            gap = _mean_of(source) - _mean_of(target)
            if certificate.population != "neutral":
                stated["cost"] = source.displacement
        else:
            for name in {label, record.target} if both else {label}:
                _require_agreement(rows, name, map_of(name), moments[name], steered(name), record.gain)
            gap = _sketched_gap(record, moments, map_of(label), map_of(record.target) if both else None)
            stated["mean_gap"] = float(np.linalg.norm(gap))
        share = moments[label].weight / (moments[label].weight + moments[record.target].weight)
        stated["probe_r2"] = max(record.probe_r2, _told_by_one_column(gap, source, target, share))
        records[label] = replace(record, **stated)
    return replace(certificate, by_source=records, measured_on="rows", **summarise(records, certificate.population))


class _Steered:
    """Some or all rows of a class after steering, with their weights."""

    def __init__(self, before: Matrix, after: Matrix, weights: Vector, *, whole: bool) -> None:
        self.before, self.after, self.weights, self.whole = before, after, weights, whole

    @classmethod
    def of(cls, rows: FitRows, label: Label, m: AffineMap | None, limit: int) -> "_Steered":
        counted = _counted(rows, label)
        whole = len(counted) <= limit
        if not whole:
            counted = counted[np.linspace(0, len(counted) - 1, limit).astype(np.intp)]
        before = rows.X[counted].astype(np.float64)
        weights = np.ones(len(counted)) if rows.weights is None else rows.weights[counted]
        return cls(before, before if m is None else m.apply(before), weights, whole=whole)

    @property
    def displacement(self) -> float:
        """E‖h − s(h)‖²."""
        squares = np.square(self.after - self.before).sum(axis=1)
        return float(self.weights @ squares / self.weights.sum())


def _counted(rows: FitRows, label: Label) -> NDArray[np.intp]:
    """Return the indices of the rows of a class whose weight is not zero."""
    of_class = rows.codes == rows.labels.index(label)
    return np.flatnonzero(of_class if rows.weights is None else of_class & (rows.weights > 0))


def gaps_between(A: Matrix, a: Vector, B: Matrix, b: Vector) -> dict[str, float]:
    """Return the gaps between rows A (n, d) of weights a and rows B (m, d) of weights b, by two passes over each."""
    largest = max(float(np.square(X).sum(axis=1).max()) for X in (A, B))
    (mean_a, A), (mean_b, B) = _centred(A, a), _centred(B, b)
    p, q = a / a.sum(), b / b.sum()
    variances = p @ np.square(A), q @ np.square(B)
    distance = float(np.linalg.norm(mean_a - mean_b))
    norm, gap = _covariances(np.sqrt(p)[:, None] * A, np.sqrt(q)[:, None] * B)
    # what rounding of the rows alone adds to a variance
    least = (64 * (A.shape[1] + 4) * np.finfo(np.float64).eps) ** 2 * largest
    traces = float(variances[0].sum() - variances[1].sum())
    return {
        "mean_gap": distance,
        "covariance_gap": _relative(gap, norm, least),
        "variance_gap": _relative(
            float(np.linalg.norm(variances[0] - variances[1])), float(np.linalg.norm(variances[1])), least
        ),
        "ebbn": abs(traces - distance**2),
    }


def _centred(X: Matrix, w: Vector) -> tuple[Vector, Matrix]:
    """Return the weighted mean, and the rows minus it; a common offset costs no digits."""
    first = X[0]
    Y = X - first
    shift = w @ Y / w.sum()
    return first + shift, Y - shift


def _covariances(A: Matrix, B: Matrix) -> tuple[float, float]:
    """Return ‖BᵀB‖_F and ‖AᵀA − BᵀB‖_F."""
    d = A.shape[1]
    if len(A) + len(B) >= d:
        target = B.T @ B
        return float(np.linalg.norm(target)), float(np.linalg.norm(A.T @ A - target))
    inner = [float(np.square(P @ Q.T).sum()) for P, Q in ((A, A), (B, B), (A, B))]
    squared = inner[0] + inner[1] - 2 * inner[2]
    if squared < EXACT * (inner[0] + inner[1]):
        # E‖Dv‖² is ‖D‖²_F for normal v, and these products do not cancel
        V = directions(d)
        squared = float(np.square(A.T @ (A @ V) - B.T @ (B @ V)).sum(axis=0).mean())
    return float(np.sqrt(inner[1])), float(np.sqrt(squared))


def _relative(gap: float, scale: float, least: float) -> float:
    """Return gap / scale; beside a target whose rows are equal, a gap counts from ``least`` on."""
    if scale > least:
        return gap / scale
    return 0.0 if gap <= least else float("inf")


def _mean_of(some: _Steered) -> Vector:
    return _centred(some.after, some.weights)[0]


def _told_by_one_column(gap: Vector, source: _Steered, target: _Steered, share: float) -> float:
    """Return the largest R² of a probe that reads one column of the steered rows; a gap of rounding counts as none.

    No linear probe is worse than the best of these, so that moments cannot hide a gap that the rows show.
    """
    both = (source, target)
    size = max(float(np.square(X).sum(axis=1).max()) for some in both for X in (some.before, some.after))
    gap = np.where(np.abs(gap) > 64 * (len(gap) + 4) * np.finfo(np.float64).eps * np.sqrt(size), gap, 0.0)
    within = [some.weights / some.weights.sum() @ np.square(_centred(some.after, some.weights)[1]) for some in both]
    between = share * (1 - share) * np.square(gap)
    total = between + share * within[0] + (1 - share) * within[1]
    return float(np.max(between / np.where(total > 0, total, 1.0)))


def _sketched_gap(record: PairRecord, moments: ClassMoments, m: AffineMap, other: AffineMap | None) -> Vector:
    """Return the gap (d,) between the means of all rows, from the sketch's own count of them."""
    source, target = (moments[label].sketch or moments[label] for label in (record.source, record.target))
    after = m.linear(source.mean[None])[0] + m.bias
    wanted = target.mean if other is None else other.linear(target.mean[None])[0] + other.bias
    gap: Vector = after - wanted
    return gap


def _require_agreement(
    rows: FitRows, label: Label, m: AffineMap, moments: Moments, some: _Steered, gain: float
) -> None:
    """Raise `CertificateError` unless all rows of a class have the moments stated along the pulled-back directions."""
    V = directions(m.dim)
    G = m.pullback(V)
    centre = some.before[0]
    along, weights = _projections(rows, label, G, centre)
    p = weights / weights.sum()
    mean = p @ along
    variance = p @ np.square(along - mean)
    if moments.factor is not None:
        stated = np.square(moments.factor @ G).sum(axis=0) / moments.weight
    else:
        stated = np.einsum("jk,jk->k", G, moments.scatter @ G) / moments.weight
    sizes = np.square(G).T @ (moments.variance if moments.sketch is None else moments.sketch.bound / moments.weight)
    tolerance = TOLERANCES[moments.precision]
    eps = float(np.finfo(np.float64).eps)
    offset = (np.abs(moments.mean) + np.abs(centre)) @ np.abs(G) * m.dim * eps
    wanted = (moments.mean - centre) @ G
    off = (np.abs(variance - stated) > tolerance * sizes) | (
        np.abs(mean - wanted) > tolerance * np.sqrt(sizes) + offset
    )
    image = (some.before - centre) @ G + (m.linear(centre[None])[0] + m.bias) @ V
    size = np.abs(some.before - centre) @ np.abs(G) + np.abs(m.linear(centre[None])[0] + m.bias) @ np.abs(V)
    # a steered row is a sum of d products, whose rounding is that of the row, not of its distance from the centre
    rounded = 16 * m.dim * eps * (1 + gain) * np.linalg.norm(some.before, axis=1)[:, None] * np.linalg.norm(V, axis=0)
    applied = bool((np.abs(some.after @ V - image) > AGREEMENT * size + rounded).any())
    if off.any() or applied:
        j = int(np.argmax(off))
        what = "the map, applied to rows, is not the one that the moments were mapped by" if applied else (
            f"along direction {j + 1}, pulled back through the map, all rows have the mean {mean[j]:.9g} and the "
            f"variance {variance[j]:.9g}, and the moments state {wanted[j]:.9g} and {stated[j]:.9g}"
        )  # fmt: skip
        raise CertificateError(
            f"class {label!r}: the rows contradict the moments that the map was fitted from: {what}. Fit again; if "
            "that does not help, report an error in repsurgery."
        )


def _projections(rows: FitRows, label: Label, G: Matrix, centre: Vector) -> tuple[Matrix, Vector]:
    """Return (h − centre)ᵀG (n, 4) of all rows of a class, and their weights."""
    counted = _counted(rows, label)
    along = np.empty((len(counted), G.shape[1]))
    buffer = np.empty((next(iter(row_blocks(len(counted), 8 * len(G)))).stop, len(G)))
    for block in row_blocks(len(counted), 8 * len(G)):
        Y = buffer[: block.stop - block.start]
        Y[:] = rows.X[counted[block]]
        Y -= centre
        np.matmul(Y, G, out=along[block])
    return along, np.ones(len(counted)) if rows.weights is None else rows.weights[counted]


def columns_on_rows(
    certificate: ContinuousCertificate, m: AffineMap, X: Rows, Z: Matrix, weights: Vector | None
) -> ContinuousCertificate:
    """Return ``certificate`` with covariances and cost measured on rows (n, d) and their concept (n, k)."""
    counted = np.arange(len(X)) if weights is None else np.flatnonzero(weights > 0)
    w = np.ones(len(counted)) if weights is None else weights[counted]
    z = _centred(Z[counted], w)[1]
    z = z / np.sqrt(w @ np.square(z) / w.sum())
    before, after = (np.zeros((X.shape[1], Z.shape[1])) for _ in range(2))
    moved, largest, squares, total = 0.0, 0.0, np.zeros(X.shape[1]), np.zeros(X.shape[1])
    first = X[counted[0]].astype(np.float64)
    image = m.linear(first[None])[0] + m.bias
    for block in row_blocks(len(counted), X.shape[1]):
        H = X[counted[block]].astype(np.float64)
        Y, wz = m.apply(H), w[block, None] * z[block]
        before += (H - first).T @ wz
        after += (Y - image).T @ wz
        moved += float(w[block] @ np.square(Y - H).sum(axis=1))
        largest = max(largest, float(np.square(H).sum(axis=1).max()), float(np.square(Y).sum(axis=1).max()))
        total += w[block] @ (Y - image)
        squares += w[block] @ np.square(Y - image)
    norms = [tuple(map(float, np.linalg.norm(C, axis=0) / w.sum())) for C in (before, after)]
    # no linear probe is worse than one that reads a single column, so that moments cannot hide what the rows show
    C, variance = after / w.sum(), np.maximum(squares / w.sum() - np.square(total / w.sum()), 0.0)[:, None]
    C[np.abs(C) <= 64 * (len(C) + 4) * np.finfo(np.float64).eps * np.sqrt(largest)] = 0.0
    told = (np.square(C) / np.where(variance > 0, variance, np.inf)).max(axis=0)
    return replace(
        certificate,
        covariance_before=norms[0],
        covariance_after=norms[1],
        r2_after=tuple(max(r2, min(float(one), 1.0)) for r2, one in zip(certificate.r2_after, told, strict=True)),
        cost=moved / w.sum(),
        measured_on="rows",
    )
