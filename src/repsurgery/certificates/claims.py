"""One test per claim: what two classes of rows say of equal means, covariances, variances and neighbours.

Each claim is tested along the gap that was there before, where what a map leaves of it shows first; the direction is
learned on one half of the rows and tested on the other. Means are also tested in norm, and covariances where rows are
many. Second moments hang on few rows, some of which only the fit may have seen: where rows are not many, their claims
are contradicted only by what is left of the gap before steering, and only if the evidence stands without the most
influential rows of each class.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from repsurgery.arrays import Matrix, Vector
from repsurgery.certificates.certificate import Claim, PairRecord
from repsurgery.certificates.class_rows import (
    ClassRows,
    Halves,
    difference,
    directions_of,
    energies_of,
    excess,
    halves,
    noise_of,
    noise_of_squares,
    overfit,
    quadratic,
    trimmed,
)
from repsurgery.certificates.evidence import Evidence, contrast, either, norm_of
from repsurgery.moments import Moments
from repsurgery.moments.closed_forms import covariance_distance

__all__ = ["SHARE", "TESTS"]

SHARE = 0.2
"""The share of the gap before steering that a map must not leave unnoticed if its claim is to be supported."""
ROUNDING = 1e-9
"""Relative slack for arithmetic, wide of float64 rounding at any dimension served here."""
MANY_ROWS = 1000
"""With as many new rows of each class, every kind of row that is 0.5 % of it is among them."""
NEGLIGIBLE = 1e-3
"""The relative gap that a certificate may claim although its map is feasible and not shrunk: rounding in float32."""


def _means(
    source: ClassRows, target: ClassRows, certified: PairRecord, claims: Sequence[Claim], level: float
) -> Evidence:
    gap, gap_before = source.mean_after - target.mean_after, source.mean_before - target.mean_before
    energies = [energies_of(source.after, target.after), energies_of(source.before, target.before)]
    furthest = float(np.sqrt(max(e.max() for pair in energies for e in pair)))
    scale = np.sqrt(source.trace + target.trace) + float(np.linalg.norm(gap_before))
    allowed = min(certified.mean_gap, NEGLIGIBLE * scale) + ROUNDING * scale
    tests = []
    for (s0, s1), (t0, t1) in halves(source, target):
        u = gap_before + source.before[s0].mean(axis=0) - target.before[t0].mean(axis=0)
        u /= float(np.linalg.norm(u)) or 1.0
        after = [source.after[s1] @ u + gap @ u, target.after[t1] @ u]
        before = [source.before[s1] @ u + gap_before @ u, target.before[t1] @ u]
        # an eraser removes the noise along the concept too, but not the error of having estimated where it lies
        both = (noise_of(scores, (source, target), furthest) for scores in (after, before))
        noise = [max(pair, key=lambda n: n.square) for pair in zip(*both, strict=True)]
        effect = SHARE * difference(before)
        # the halves of the fitting rows themselves differ, but their gap is none
        left = min(abs(difference(after)), float(np.linalg.norm(gap)))
        tests.append(contrast(left, claimed=allowed, effect=effect, noise=noise, level=level / 3))
    sampling = sum(float(e.sum()) / len(e) ** 2 for e in energies[1])
    tests.append(
        norm_of(
            float(np.linalg.norm(gap)),
            claimed=allowed,
            effect=SHARE * float(np.sqrt(max(float(gap_before @ gap_before) - sampling, 0.0))),
            noise=noise_of_squares(energies[0], (source, target), furthest),
            directions=directions_of(source, target),
            level=level / 3,
        )
    )
    return either(tests)


def _covariances(
    source: ClassRows, target: ClassRows, certified: PairRecord, claims: Sequence[Claim], level: float
) -> Evidence:
    S, T = Moments.of(source.after), Moments.of(target.after)
    energies, widths = energies_of(source.after, target.after), (excess(source, target), 1.0)
    furthest = max(w * float(e.max()) for w, e in zip(widths, energies, strict=True))
    norm, unseen = float(np.sqrt(T.squared_norm)), ROUNDING + overfit(claims, target, source.fitting_rows)
    slack = (_excused(certified.covariance_gap, certified) + unseen) * norm
    gap = covariance_distance(S, T)
    tests = []
    if min(len(source.after), len(target.after)) >= MANY_ROWS:
        # so many rows tell what the map does to their kind, however few rows it was fitted on
        squares = [np.maximum(np.square(e) - m.squared_norm, 0.0) for e, m in zip(energies, (S, T), strict=True)]
        noise = noise_of_squares(squares, (source, target), furthest, widths)
        directions = directions_of(source, target, squared=True)
        tests.append(norm_of(gap, claimed=slack, effect=0.0, noise=noise, directions=directions, level=level / 3))
    for (s0, s1), (t0, t1) in halves(source, target):
        learn = source.before[s0], target.before[t0]
        length = covariance_distance(*(Moments.of(rows) for rows in learn)) or 1.0

        def along(X: Matrix, learn: tuple[Matrix, Matrix] = learn, length: float = length) -> Vector:
            return (quadratic(X, learn[0]) - quadratic(X, learn[1])) / length

        after, before = _scores(along, source, target, (s1, t1))
        tests.append(_left_over(after, before, source, target, gap, slack, furthest, level / 3))
    return either(tests)


def _variances(
    source: ClassRows, target: ClassRows, certified: PairRecord, claims: Sequence[Claim], level: float
) -> Evidence:
    norm = float(np.linalg.norm(np.square(target.after).mean(axis=0)))
    unseen = ROUNDING + overfit(claims, target, source.fitting_rows)
    slack = (_excused(certified.variance_gap, certified) + unseen) * norm
    furthest = max(float(np.sqrt(np.square(np.square(r.after)).sum(axis=1).max())) for r in (source, target))
    gap = float(np.linalg.norm(np.square(source.after).mean(axis=0) - np.square(target.after).mean(axis=0)))
    tests = []
    for (s0, s1), (t0, t1) in halves(source, target):
        u = np.square(source.before[s0]).mean(axis=0) - np.square(target.before[t0]).mean(axis=0)
        u /= float(np.linalg.norm(u)) or 1.0

        def along(X: Matrix, u: Vector = u) -> Vector:
            return np.square(X) @ u

        after, before = _scores(along, source, target, (s1, t1))
        tests.append(_left_over(after, before, source, target, gap, slack, furthest, level / 2))
    return either(tests)


def _neighbours(
    source: ClassRows, target: ClassRows, certified: PairRecord, claims: Sequence[Claim], level: float
) -> Evidence:
    after, before = energies_of(source.after, target.after), energies_of(source.before, target.before)
    gap, gap_before = source.mean_after - target.mean_after, source.mean_before - target.mean_before
    widths = excess(source, target), 1.0
    furthest = max(w * float(e.max()) for w, e in zip(widths, after, strict=True))
    unseen = ROUNDING + overfit(claims, target, source.fitting_rows)
    after = _neighbour_scores(after, gap, [1 / len(r.after) + 1 / r.fitting_rows for r in (source, target)])
    before = _neighbour_scores(before, gap_before, [1 / len(r.after) for r in (source, target)])
    # |tr D| ≤ √d ‖D‖ for the part of the gap that no map avoids
    claimed = min(certified.ebbn, _excused(np.inf, certified) * np.sqrt(len(gap)) * target.trace)
    slack = claimed + unseen * target.trace
    return _left_over(after, before, source, target, np.inf, slack, furthest, level)


def _neighbour_scores(energies: Sequence[Vector], gap: Vector, per_row: Sequence[float]) -> list[Vector]:
    """Return scores whose means differ by tr Σ₀ − tr Σ₁ − ‖gap‖², each term without bias."""
    scores = [e * (len(e) / (len(e) - 1)) for e in energies]
    sampling = sum(float(s.mean()) * r for s, r in zip(scores, per_row, strict=True))
    return [scores[0] - max(float(gap @ gap) - sampling, 0.0), scores[1]]


def _scores(
    along: Callable[[Matrix], Vector], source: ClassRows, target: ClassRows, rows: Halves
) -> tuple[list[Vector], list[Vector]]:
    pairs = list(zip((source, target), rows, strict=True))
    return [along(r.after[i]) for r, i in pairs], [along(r.before[i]) for r, i in pairs]


def _left_over(
    after: Sequence[Vector],
    before: Sequence[Vector],
    source: ClassRows,
    target: ClassRows,
    gap: float,
    slack: float,
    furthest: float,
    level: float,
) -> Evidence:
    """Return the evidence of a gap; of few rows, the weaker evidence with and without the most influential ones.

    Few rows may lack rare rows that the fit had seen, and a map that met those overshoots, or leaves a gap where there
    was none. With few rows only a part of the gap before counts, and that gap must itself be significant.
    """
    rows, widths = (source, target), (excess(source, target), 1.0)

    def test(left: Sequence[Vector], was: Sequence[Vector], sign: float, most: float) -> Evidence:
        return contrast(
            min(max(sign * difference(left), 0.0), most),
            claimed=slack,
            effect=SHARE * abs(difference(was)),
            noise=noise_of(left, rows, furthest, widths),
            level=level,
        )

    if all(len(r.after) >= MANY_ROWS for r in rows):
        return test(after, before, np.sign(difference(after)), gap)
    inner, inner_before = [trimmed(s) for s in after], [trimmed(s) for s in before]
    untouched = difference(inner_before)
    sign, noise = np.sign(untouched), noise_of(inner_before, rows, furthest)
    tests = [
        test(after, before, sign, gap),
        test(inner, inner_before, sign, np.inf),
        contrast(untouched, claimed=0.0, effect=abs(untouched), noise=noise, level=level),
    ]
    return replace(tests[0], p_value=max(e.p_value for e in tests), power=min(e.power for e in tests))


def _excused(claimed: float, certified: PairRecord) -> float:
    """Return how much of a certified relative gap counts: what no map avoids, what shrinkage moved, and rounding."""
    return min(claimed, certified.residual_bound + certified.shrinkage_moved + NEGLIGIBLE)


Test = Callable[[ClassRows, ClassRows, PairRecord, Sequence[Claim], float], Evidence]
TESTS: Mapping[Claim, Test] = {
    "means": _means,
    "covariances": _covariances,
    "variances": _variances,
    "neighbours": _neighbours,
}
