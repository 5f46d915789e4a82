"""Issue a certificate from moments alone: every measure is computed from the map, none is copied from theory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.linalg import bandwidth, blas

from repsurgery.affine import AffineMap, Dense, Identity, Translation
from repsurgery.arrays import Label, Matrix, row_blocks
from repsurgery.certificates.certificate import Certificate, Claim, PairRecord, Population, summarise
from repsurgery.linalg.spectrum import mirror_upper
from repsurgery.moments import ClassMoments, Moments
from repsurgery.moments.closed_forms import (
    covariance_distance,
    expected_neighbour_bias,
    least_squares_probe,
    mean_gap,
    relative_gap,
    variance_gap,
)

__all__ = ["Method", "Solution", "issue", "pushforward"]

MET = 1e-12
"""A relative covariance gap up to this is rounding: the covariances are equal."""


@dataclass(frozen=True, slots=True)
class Solution:
    """A map, with the properties that its method computed on the way.

    ``discarded`` is the covariance residual, in Frobenius norm, that no affine map avoids, and ``moved`` the residual
    that the shrinkage causes; ``root`` is a square root of the source covariance, if the solver computed one; ``alpha``
    says how far the covariances of source and target were drawn towards the pooled one, if they were.
    """

    map: AffineMap
    optimal_cost: float
    feasible: bool = True
    rank_source: int | None = None
    rank_target: int | None = None
    discarded: float = 0.0
    moved: float = 0.0
    root: Matrix | None = None
    alpha: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Method:
    """The method itself, as its certificate describes it."""

    name: str
    claims: tuple[Claim, ...]
    population: Population
    shrinkage: str
    ridge: float | None
    target: Label | None = None
    neutral: Label | None = None
    alpha: float | str | None = None


def pushforward(moments: Moments, m: AffineMap, root: Matrix | None = None) -> tuple[Moments, float]:
    """Return the moments of the mapped rows, and E‖h − m(h)‖² over them.

    ``root`` is any R with RᵀR = Σ, if known; it is not modified. Groups are lost unless the map is a translation:
    moments hold the spread between groups as one number, from which its image cannot be computed.
    """
    mean = m.linear(moments.mean[None])[0] + m.bias
    drift = float(np.square(mean - moments.mean).sum())
    if isinstance(m, Translation | Identity):
        return moments.derived(mean=mean), drift
    moments = moments.derived(groups=None)
    R = moments.root() if root is None else root
    image = _image(R, m)
    cost = drift + sum(float(np.square(image[i] - R[i]).sum()) for i in row_blocks(*R.shape))
    del R
    if moments.factor is not None:
        return moments.derived(mean=mean, factor=image * np.sqrt(moments.weight)), cost
    if len(image) == 0:  # a class without spread has none after the map
        return moments.derived(mean=mean), cost
    scatter = mirror_upper(blas.dsyrk(moments.weight, image, trans=1, lower=0))
    return moments.derived(mean=mean, dense=scatter), cost


def _image(R: Matrix, m: AffineMap) -> Matrix:
    if isinstance(m, Dense) and len(R) == m.dim and bandwidth(R)[0] == 0:
        image: Matrix = blas.dtrmm(1.0, R, m.matrix.T, lower=0)  # half the products of R Wᵀ are with zeros
        return image
    return m.linear(R)


def issue(method: Method, moments: ClassMoments, solutions: Mapping[Label, Solution]) -> Certificate:
    """Return the certificate of ``solutions`` on ``moments``.

    A steered class is compared with the target. An eraser has no target: each class is compared with the last one,
    both after erasure, and the last class with the first.
    """

    @cache
    def steered(label: Label) -> tuple[Moments, float]:
        return pushforward(moments[label], solutions[label].map, solutions[label].root)

    records = {}
    for label, solution in solutions.items():
        reference = _reference(method, moments, label)
        before = (moments[label], moments[reference])
        source, cost = steered(label)
        after = (source, steered(reference)[0] if method.population == "all" else before[1])
        if method.population == "neutral":
            cost = pushforward(moments.total if method.neutral is None else moments[method.neutral], solution.map)[1]
        reached = [solution, solutions[reference]] if method.population == "all" else [solution]
        records[label] = _record(label, reference, before, after, cost, reached)
    used = [moments[label] for record in records.values() for label in (record.source, record.target)]
    return Certificate(
        method=method.name,
        claims=method.claims,
        population=method.population,
        target=method.target,
        neutral=method.neutral,
        by_source=records,
        shrinkage=method.shrinkage,
        ridge=method.ridge,
        alpha=method.alpha,
        dtype="float64" if all(m.dtype == "float64" for m in used) else "float32",
        precision="float64" if all(m.precision == "float64" for m in used) else "float32-products",
        rank_tolerance=max(m.rank_tolerance for m in used),
        **summarise(records, method.population),
    )


def _reference(method: Method, moments: ClassMoments, label: Label) -> Label:
    if method.target is not None:
        return method.target
    first, last = moments.labels[0], moments.labels[-1]
    return first if label == last else last


def _record(
    source: Label,
    target: Label,
    before: tuple[Moments, Moments],
    after: tuple[Moments, Moments],
    cost: float,
    reached: Sequence[Solution],
) -> PairRecord:
    """Return the record of two classes; ``reached`` are the solutions of those that are steered, the source's first."""
    solution = reached[0]
    norm_before = float(np.sqrt(before[1].squared_norm))
    norm = norm_before if after[1] is before[1] else float(np.sqrt(after[1].squared_norm))
    gap = relative_gap(covariance_distance(*after), norm)
    # ranks are decided by tolerance, and two classes that both miss the barycentre may still match each other
    feasible = all(s.feasible for s in reached) or gap <= MET
    discarded = sum(s.discarded for s in reached)
    return PairRecord(
        source=source,
        target=target,
        rows_source=before[0].count,
        rows_target=before[1].count,
        effective_source=_effective_rows(before[0]),
        effective_target=_effective_rows(before[1]),
        weight_source=before[0].weight,
        mean_gap=mean_gap(*after),
        covariance_gap=gap,
        variance_gap=variance_gap(*after),
        ebbn=expected_neighbour_bias(*after),
        cost=cost,
        optimal_cost=solution.optimal_cost,
        probe_r2=least_squares_probe(after),
        mean_gap_before=mean_gap(*before),
        covariance_gap_before=relative_gap(covariance_distance(*before), norm_before),
        ebbn_before=expected_neighbour_bias(*before),
        probe_r2_before=least_squares_probe(before),
        gain=solution.map.gain(),
        feasible=feasible,
        rank_source=solution.rank_source,
        rank_target=solution.rank_target,
        residual_bound=0.0 if feasible else relative_gap(discarded, norm),
        shrinkage_moved=relative_gap(solution.moved, norm),
        alpha_source=None if solution.alpha is None else solution.alpha[0],
        alpha_target=None if solution.alpha is None else solution.alpha[1],
    )


def _effective_rows(m: Moments) -> float:
    """Return the number of rows, divided by the design effect of their groups."""
    return m.count / (m.weight / m.effective_count)
