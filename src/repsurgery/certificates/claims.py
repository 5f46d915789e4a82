"""One test per claim: equal means, covariances, variances or neighbours of two classes of rows.

Each claim is tested along the gap before steering, because a remainder of that gap is the likeliest violation; the
direction is learned on one half of the rows and tested on the other. Means are also tested in norm, and so are
covariances where rows are many. Second moments depend on few rows, some of which may occur in the fitting data alone.
Where rows are not many, claims about second moments are therefore contradicted only by a remainder of the gap before
steering, and only if the evidence persists without the most influential rows of each class. Where rows come in groups,
"rows" means groups wherever sampling errors are estimated: see `group_rows`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from repsurgery.arrays import Matrix, Vector
from repsurgery.certificates.certificate import Claim, PairRecord
from repsurgery.certificates.class_rows import (
    ClassRows,
    difference,
    directions_of,
    energies_of,
    excess,
    halves,
    neighbour_scores,
    noise_of,
    noise_of_squares,
    outer_squares,
    overfit,
    quadratic,
    trimmed,
)
from repsurgery.certificates.evidence import Evidence, contrast, either, norm_of
from repsurgery.moments import Moments
from repsurgery.moments.closed_forms import covariance_distance

__all__ = ["SHARE", "TESTS", "equal_means"]

Scores = Callable[[Matrix], Vector]
"""Scores (n,) of rows (n, d)."""

SHARE = 0.2
"""The share of the gap before steering whose remainder must be detectable for a claim to be supported."""
ROUNDING = 1e-9
"""Relative slack for arithmetic, far above float64 rounding at any supported dimension."""
EPS = float(np.finfo(np.float64).eps)
MANY_ROWS = 1000
"""So many new rows of a class contain every kind of row that makes up 0.5 % of it."""
NEGLIGIBLE = 1e-3
"""The relative gap that a certificate may state for a feasible map without shrinkage: rounding in float32."""


def _means(
    source: ClassRows, target: ClassRows, certified: PairRecord, claims: Sequence[Claim], level: float
) -> Evidence:
    return equal_means(source, target, certified.mean_gap, level)


def equal_means(source: ClassRows, target: ClassRows, certified: float, level: float) -> Evidence:
    """Test that two classes have equal means after steering; ``certified`` is the gap that the certificate states."""
    source, target = source.of_groups(), target.of_groups()
    gap, gap_before = source.mean_after - target.mean_after, source.mean_before - target.mean_before
    energies = [energies_of(source.after, target.after), energies_of(source.before, target.before)]
    furthest = float(np.sqrt(max(e.max() for pair in energies for e in pair)))
    scale = np.sqrt(source.trace + target.trace) + float(np.linalg.norm(gap_before))
    allowed = min(certified, NEGLIGIBLE * scale) + ROUNDING * scale
    tests = []
    for (s0, s1), (t0, t1) in halves(source, target):
        u = gap_before + source.before[s0].mean(axis=0) - target.before[t0].mean(axis=0)
        u /= float(np.linalg.norm(u)) or 1.0
        after = [source.after[s1] @ u + gap @ u, target.after[t1] @ u]
        before = [source.before[s1] @ u + gap_before @ u, target.before[t1] @ u]
        # an eraser removes the noise along the concept too, but not the error of estimating the concept's direction
        both = (noise_of(scores, (source, target), furthest) for scores in (after, before))
        noise = [max(pair, key=lambda n: n.square) for pair in zip(*both, strict=True)]
        effect = SHARE * difference(before)
        # the halves of the fitting rows differ from each other, although the gap of all of them is zero
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
    furthest = _furthest(max(w * float(e.max()) for w, e in zip(widths, energies, strict=True)), source, target)
    norm, overfitted = float(np.sqrt(T.squared_norm)), ROUNDING + overfit(claims, target, source.fitting_rows)
    slack = _absolute(_excused(certified.covariance_gap, certified) + overfitted, norm) + _rounding(source, target)
    gap = covariance_distance(S, T)
    tests = []
    if min(source.units, target.units) >= MANY_ROWS:
        # so many rows show the effect of the map on their population, however few rows it was fitted on
        known = zip((source, target), energies, (S, T), strict=True)
        squares = [outer_squares(r, e, m.squared_norm) for r, e, m in known]
        noise = noise_of_squares(squares, (source, target), furthest, widths)
        directions = directions_of(source, target, squared=True)
        tests.append(norm_of(gap, claimed=slack, effect=0.0, noise=noise, directions=directions, level=level / 3))
    limits = {"gap": gap, "slack": slack, "furthest": furthest, "level": level / 3}
    tests += _along_halves(_covariance_direction, source, target, **limits)
    return either(tests)


def _covariance_direction(S: Matrix, T: Matrix) -> Scores:
    length = covariance_distance(Moments.of(S), Moments.of(T)) or 1.0
    return lambda X: (quadratic(X, S) - quadratic(X, T)) / length


def _variances(
    source: ClassRows, target: ClassRows, certified: PairRecord, claims: Sequence[Claim], level: float
) -> Evidence:
    norm = float(np.linalg.norm(np.square(target.after).mean(axis=0)))
    overfitted = ROUNDING + overfit(claims, target, source.fitting_rows)
    slack = _absolute(_excused(certified.variance_gap, certified) + overfitted, norm) + _rounding(source, target)
    longest = max(float(np.sqrt(np.square(np.square(r.after)).sum(axis=1).max())) for r in (source, target))
    furthest = _furthest(longest, source, target)
    gap = float(np.linalg.norm(np.square(source.after).mean(axis=0) - np.square(target.after).mean(axis=0)))
    limits = {"gap": gap, "slack": slack, "furthest": furthest, "level": level / 2}
    return either(list(_along_halves(_variance_direction, source, target, **limits)))


def _variance_direction(S: Matrix, T: Matrix) -> Scores:
    u = np.square(S).mean(axis=0) - np.square(T).mean(axis=0)
    u /= float(np.linalg.norm(u)) or 1.0
    return lambda X: np.square(X) @ u


def _neighbours(
    source: ClassRows, target: ClassRows, certified: PairRecord, claims: Sequence[Claim], level: float
) -> Evidence:
    after, before = energies_of(source.after, target.after), energies_of(source.before, target.before)
    gap, gap_before = source.mean_after - target.mean_after, source.mean_before - target.mean_before
    widths = excess(source, target), 1.0
    furthest = _furthest(max(w * float(e.max()) for w, e in zip(widths, after, strict=True)), source, target)
    overfitted = ROUNDING + overfit(claims, target, source.fitting_rows)
    rows = (source, target)
    after = neighbour_scores(after, gap, rows, [1 / r.effective + 1 / r.fitting_rows for r in rows])
    before = neighbour_scores(before, gap_before, rows, [1 / r.effective for r in rows])
    # |tr D| ≤ √d ‖D‖ for the part of the gap that no map avoids
    claimed = min(certified.ebbn, _absolute(_excused(np.inf, certified), float(np.sqrt(len(gap))) * target.trace))
    slack = claimed + overfitted * target.trace + _rounding(source, target)
    return _left_over(after, before, source, target, gap=np.inf, slack=slack, furthest=furthest, level=level)


def _along_halves(
    direction: Callable[[Matrix, Matrix], Scores], source: ClassRows, target: ClassRows, **limits: float
) -> Iterator[Evidence]:
    """Learn a direction on one half of the rows before steering and test it on the other half; then exchange them."""
    for (s0, s1), (t0, t1) in halves(source, target):
        score = direction(source.before[s0], target.before[t0])
        after, before = (
            [source.by_group(score(S[s1]), s1), target.by_group(score(T[t1]), t1)]
            for S, T in ((source.after, target.after), (source.before, target.before))
        )
        yield _left_over(after, before, source, target, **limits)


def _left_over(
    after: Sequence[Vector],
    before: Sequence[Vector],
    source: ClassRows,
    target: ClassRows,
    *,
    gap: float,
    slack: float,
    furthest: float,
    level: float,
) -> Evidence:
    """Return the evidence of a gap; with few rows, the weaker evidence with and without the most influential rows.

    Few rows may lack rare rows that were in the fitting data; a map fitted on those overshoots here, or opens a gap
    where there was none. With few rows only a remainder of the gap before steering counts, and that gap must itself be
    significant.
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

    if all(r.units >= MANY_ROWS for r in rows):
        return test(after, before, np.sign(difference(after)), gap)
    inner, inner_before = [trimmed(s) for s in after], [trimmed(s) for s in before]
    gap_before = difference(inner_before)
    sign, noise = np.sign(gap_before), noise_of(inner_before, rows, furthest)
    tests = [
        test(after, before, sign, gap),
        test(inner, inner_before, sign, np.inf),
        contrast(gap_before, claimed=0.0, effect=abs(gap_before), noise=noise, level=level),
    ]
    return replace(tests[0], p_value=max(e.p_value for e in tests), power=min(e.power for e in tests))


def _furthest(score: float, source: ClassRows, target: ClassRows) -> float:
    """Return the largest possible score of a group, from the largest ``score`` of a row."""
    return score * max(source.heaviest, target.heaviest)


def _excused(claimed: float, certified: PairRecord) -> float:
    """Return the part of a certified relative gap that is excused: the unavoidable gap, shrinkage and rounding."""
    return min(claimed, certified.residual_bound + certified.shrinkage_moved + NEGLIGIBLE)


def _absolute(relative: float, norm: float) -> float:
    """Return a relative gap in the units of ``norm``; one that is relative to zero, and infinite, excuses every gap."""
    return relative if np.isinf(relative) else relative * norm


def _rounding(source: ClassRows, target: ClassRows) -> float:
    """Return the second moments that centring gives to equal rows."""
    return (16 * EPS) ** 2 * float(np.square([source.mean_after, target.mean_after]).sum())


Test = Callable[[ClassRows, ClassRows, PairRecord, Sequence[Claim], float], Evidence]
TESTS: Mapping[Claim, Test] = {
    "means": _means,
    "covariances": _covariances,
    "variances": _variances,
    "neighbours": _neighbours,
}
