"""Issue a certificate from moments alone: every figure is measured on the map, none is taken on trust."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import blas

from repsurgery.affine import AffineMap, Diagonal, Identity, Translation
from repsurgery.arrays import Label, Matrix
from repsurgery.certificates.certificate import Certificate, Claim, PairRecord, Population, summarise
from repsurgery.linalg.shrinkage import NO_SHRINKAGE, Shrinkage
from repsurgery.linalg.spectrum import mirror_upper
from repsurgery.moments import ClassMoments, Moments
from repsurgery.moments.closed_forms import (
    covariance_gap,
    expected_neighbour_bias,
    least_squares_probe,
    mean_gap,
    variance_gap,
)

__all__ = ["Method", "Solution", "issue", "pushforward"]


@dataclass(frozen=True, slots=True)
class Solution:
    """A map and what its method knows of it: optimum, ranks, and the shrinkages it used."""

    map: AffineMap
    optimal_cost: float
    feasible: bool = True
    rank_source: int | None = None
    rank_target: int | None = None
    discarded: float = 0.0
    shrinkage_source: Shrinkage = NO_SHRINKAGE
    shrinkage_target: Shrinkage = NO_SHRINKAGE


@dataclass(frozen=True, slots=True)
class Method:
    """What a certificate says of the method itself."""

    name: str
    claims: tuple[Claim, ...]
    population: Population
    shrinkage: str
    ridge: float | None
    target: Label | None = None
    neutral: Label | None = None


def pushforward(moments: Moments, m: AffineMap) -> tuple[Moments, float]:
    """Return the moments of the mapped rows, and E‖h − m(h)‖² over them."""
    mean = m.linear(moments.mean[None])[0] + m.bias
    drift = float(np.square(mean - moments.mean).sum())
    if isinstance(m, Translation | Identity):
        return replace(moments, mean=mean), drift
    R = moments.root()
    image = m.linear(R)
    cost = drift + float(np.square(image - R).sum())
    del R
    if moments.factor is not None:
        return replace(moments, mean=mean, factor=image * np.sqrt(moments.weight)), cost
    scatter = mirror_upper(blas.dsyrk(moments.weight, image, trans=1, lower=0))
    return replace(moments, mean=mean, dense=scatter), cost


def issue(method: Method, moments: ClassMoments, solutions: Mapping[Label, Solution]) -> Certificate:
    """Return the certificate of ``solutions`` on ``moments``: steered against target, or erased against pooled."""
    if method.population == "all":
        records = _erasure_records(moments, solutions)
    else:
        records = {label: _steering_record(method, moments, label, s) for label, s in solutions.items()}
    used = [moments[label] for label in {*solutions, *_reference_labels(method)}]
    return Certificate(
        method=method.name,
        claims=method.claims,
        population=method.population,
        target=method.target,
        neutral=method.neutral,
        by_source=records,
        shrinkage=method.shrinkage,
        ridge=method.ridge,
        dtype="float64" if all(m.dtype == "float64" for m in used) else "float32",
        precision="float64" if all(m.precision == "float64" for m in used) else "float32-products",
        rank_tolerance=max(m.rank_tolerance for m in used),
        **summarise(records, method.population),
    )


def _reference_labels(method: Method) -> list[Label]:
    return [label for label in (method.target, method.neutral) if label is not None]


def _steering_record(method: Method, moments: ClassMoments, label: Label, solution: Solution) -> PairRecord:
    assert method.target is not None
    source, target = moments[label], moments[method.target]
    steered, cost = pushforward(source, solution.map)
    if method.population == "neutral":
        neutral = moments.total if method.neutral is None else moments[method.neutral]
        cost = pushforward(neutral, solution.map)[1]
    return _record(label, method.target, [source, target], [steered, target], cost, solution)


def _erasure_records(moments: ClassMoments, solutions: Mapping[Label, Solution]) -> dict[Label, PairRecord]:
    erased = {label: pushforward(moments[label], s.map) for label, s in solutions.items()}
    before, after = _pooled(list(moments.values())), _pooled([m for m, _ in erased.values()])
    probe_before = least_squares_probe(list(moments.values()))
    probe_after = least_squares_probe([m for m, _ in erased.values()])
    records = {}
    for label, (m, cost) in erased.items():
        record = _record(label, None, [moments[label], before], [m, after], cost, solutions[label], probes=False)
        worst = max(expected_neighbour_bias(m, other) for other, _ in erased.values())
        worst_before = max(expected_neighbour_bias(moments[label], other) for other in moments.values())
        records[label] = replace(
            record, ebbn=worst, ebbn_before=worst_before, probe_r2=probe_after, probe_r2_before=probe_before
        )
    return records


def _pooled(classes: list[Moments]) -> Moments:
    """Return the overall mean with the pooled within-class covariance."""
    weight = sum(m.weight for m in classes)
    mean = sum(m.weight * m.mean for m in classes) / weight
    base = replace(classes[0], count=sum(m.count for m in classes), weight=weight, mean=np.asarray(mean))
    if all(m.factor is not None for m in classes) and base.count < base.dim:
        return replace(base, factor=np.vstack([m.factor for m in classes if m.factor is not None]))
    scatter: Matrix = sum((m.scatter for m in classes[1:]), start=classes[0].scatter.copy())
    return replace(base, dense=scatter, factor=None)


def _record(
    source: Label,
    target: Label | None,
    before: list[Moments],
    after: list[Moments],
    cost: float,
    solution: Solution,
    *,
    probes: bool = True,
) -> PairRecord:
    scale = np.sqrt(after[1].squared_norm)
    return PairRecord(
        source=source,
        target=target,
        rows_source=before[0].count,
        rows_target=before[1].count,
        weight_source=before[0].weight,
        mean_gap=mean_gap(*after),
        covariance_gap=covariance_gap(*after),
        variance_gap=variance_gap(*after),
        ebbn=expected_neighbour_bias(*after),
        cost=cost,
        optimal_cost=solution.optimal_cost,
        probe_r2=least_squares_probe(after) if probes else 0.0,
        mean_gap_before=mean_gap(*before),
        covariance_gap_before=covariance_gap(*before),
        ebbn_before=expected_neighbour_bias(*before),
        probe_r2_before=least_squares_probe(before) if probes else 0.0,
        gain=solution.map.gain(),
        feasible=solution.feasible,
        rank_source=solution.rank_source,
        rank_target=solution.rank_target,
        residual_bound=solution.discarded / scale if scale > 0 else 0.0,
        shrinkage_moved=_moved(solution, after[1], scale),
    )


def _moved(solution: Solution, target: Moments, scale: float) -> float:
    """Return the gap the ridge identity predicts.

    W (a₀Σ₀ + c₀I) Wᵀ = a₁Σ₁ + c₁I gives W Σ₀ Wᵀ − Σ₁ = [(a₁ − a₀) Σ₁ + c₁ I − c₀ W Wᵀ] / a₀.
    """
    s0, s1 = solution.shrinkage_source, solution.shrinkage_target
    if s0 == s1 == NO_SHRINKAGE or scale == 0:
        return 0.0
    if s0.keep == 0:
        return float("inf")
    if isinstance(solution.map, Diagonal):  # the identity holds on the diagonal alone
        a, c = s1.keep - s0.keep, s1.floor - s0.floor * solution.map.scale**2
        return float(np.linalg.norm(a * target.variance + c) / s0.keep / np.linalg.norm(target.variance))
    W = solution.map.weight
    moved = (s1.keep - s0.keep) * target.covariance - s0.floor * (W @ W.T)
    moved[np.diag_indices_from(moved)] += s1.floor
    return float(np.linalg.norm(moved) / s0.keep / scale)
