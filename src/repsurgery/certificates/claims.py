"""One test per claim: what two classes of rows say of equal means, covariances, variances and neighbours.

Each claim is tested along the gap that was there before, where what a map leaves of it shows first; the direction is
learned on one half of the rows and tested on the other. Means are also tested in norm, and covariances where rows are
many. Second moments hang on few rows, some of which only the fit may have seen: where rows are not many, their claims
are contradicted only by what is left of the gap before steering, and only if the evidence stands without the most
influential rows of each class.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Matrix, Vector
from repsurgery.certificates.certificate import Claim, PairRecord
from repsurgery.certificates.evidence import Evidence, Noise, contrast, either, norm_of
from repsurgery.moments import Moments
from repsurgery.moments.closed_forms import covariance_distance

__all__ = ["SHARE", "TESTS", "ClassRows"]

SHARE = 0.2
"""The share of the gap before steering that a map must not leave unnoticed if its claim is to be supported."""
ROUNDING = 1e-9
"""Relative slack for arithmetic, wide of float64 rounding at any dimension served here."""
FEW_ROWS = 50
"""With fewer rows of a class, new or fitted, a direction may not have been seen at work: any row might lie along it."""
MANY_ROWS = 1000
"""With as many new rows of each class, every kind of row that is 0.5 % of it is among them."""
TRIM = 0.05
"""The share of each class, its most influential rows, without which evidence on second moments must still stand."""
NEGLIGIBLE = 1e-3
"""The relative gap that a certificate may claim although its map is feasible and not shrunk: rounding in float32."""
GRAM_ROWS = 500
"""Rows per class from which the number of directions of the noise is read."""

Halves = tuple[NDArray[np.intp], NDArray[np.intp]]


@dataclass(frozen=True, slots=True, eq=False)
class ClassRows:
    """Rows of one class, untouched and as the map leaves them, about their own means.

    Attributes
    ----------
    before, after : (n, d) arrays
        Centred.
    mean_before, mean_after : (d,) arrays
    fitting_rows : int
        How many rows of the class the map was fitted on; their error counts as much as that of these rows.
    """

    before: Matrix
    after: Matrix
    mean_before: Vector
    mean_after: Vector
    fitting_rows: int

    @classmethod
    def of(cls, before: Matrix, after: Matrix, fitting_rows: int) -> "ClassRows":
        """Centre the rows (n, d) before and after steering."""
        m0, m1 = before.mean(axis=0), after.mean(axis=0)
        return cls(before - m0, after - m1, m0, m1, fitting_rows)

    @property
    def few(self) -> bool:
        """Whether these rows, or those of the fit, are few."""
        return min(len(self.after), self.fitting_rows) < FEW_ROWS

    @property
    def trace(self) -> float:
        """Tr Σ after steering, with n − 1."""
        return float(np.square(self.after).sum() / (len(self.after) - 1))


def _means(
    source: ClassRows, target: ClassRows, certified: PairRecord, claims: Sequence[Claim], level: float
) -> Evidence:
    gap, gap_before = source.mean_after - target.mean_after, source.mean_before - target.mean_before
    energies = [_energies(source.after, target.after), _energies(source.before, target.before)]
    furthest = float(np.sqrt(max(e.max() for pair in energies for e in pair)))
    scale = np.sqrt(source.trace + target.trace) + float(np.linalg.norm(gap_before))
    allowed = min(certified.mean_gap, NEGLIGIBLE * scale) + ROUNDING * scale
    tests = []
    for (s0, s1), (t0, t1) in _halves(source, target):
        u = gap_before + source.before[s0].mean(axis=0) - target.before[t0].mean(axis=0)
        u /= float(np.linalg.norm(u)) or 1.0
        after = [source.after[s1] @ u + gap @ u, target.after[t1] @ u]
        before = [source.before[s1] @ u + gap_before @ u, target.before[t1] @ u]
        # an eraser removes the noise along the concept too, but not the error of having estimated where it lies
        both = (_noise(scores, (source, target), furthest) for scores in (after, before))
        noise = [max(pair, key=lambda n: n.square) for pair in zip(*both, strict=True)]
        effect = SHARE * _difference(before)
        # the halves of the fitting rows themselves differ, but their gap is none
        left = min(abs(_difference(after)), float(np.linalg.norm(gap)))
        tests.append(contrast(left, claimed=allowed, effect=effect, noise=noise, level=level / 3))
    sampling = sum(float(e.sum()) / len(e) ** 2 for e in energies[1])
    tests.append(
        norm_of(
            float(np.linalg.norm(gap)),
            claimed=allowed,
            effect=SHARE * float(np.sqrt(max(float(gap_before @ gap_before) - sampling, 0.0))),
            noise=_noise_of_squares(energies[0], (source, target), furthest),
            directions=_directions(source, target),
            level=level / 3,
        )
    )
    return either(tests)


def _covariances(
    source: ClassRows, target: ClassRows, certified: PairRecord, claims: Sequence[Claim], level: float
) -> Evidence:
    S, T = Moments.of(source.after), Moments.of(target.after)
    energies, widths = _energies(source.after, target.after), (_excess(source, target), 1.0)
    furthest = max(w * float(e.max()) for w, e in zip(widths, energies, strict=True))
    norm, unseen = float(np.sqrt(T.squared_norm)), ROUNDING + _overfit(claims, target, source.fitting_rows)
    slack = (_excused(certified.covariance_gap, certified) + unseen) * norm
    gap = covariance_distance(S, T)
    tests = []
    if min(len(source.after), len(target.after)) >= MANY_ROWS:
        # so many rows tell what the map does to their kind, however few rows it was fitted on
        squares = [np.maximum(np.square(e) - m.squared_norm, 0.0) for e, m in zip(energies, (S, T), strict=True)]
        noise = _noise_of_squares(squares, (source, target), furthest, widths)
        directions = _directions(source, target, squared=True)
        tests.append(norm_of(gap, claimed=slack, effect=0.0, noise=noise, directions=directions, level=level / 3))
    for (s0, s1), (t0, t1) in _halves(source, target):
        learn = source.before[s0], target.before[t0]
        length = covariance_distance(*(Moments.of(rows) for rows in learn)) or 1.0

        def along(X: Matrix, learn: tuple[Matrix, Matrix] = learn, length: float = length) -> Vector:
            return (_quadratic(X, learn[0]) - _quadratic(X, learn[1])) / length

        after, before = _scores(along, source, target, (s1, t1))
        tests.append(_left_over(after, before, source, target, gap, slack, furthest, level / 3))
    return either(tests)


def _variances(
    source: ClassRows, target: ClassRows, certified: PairRecord, claims: Sequence[Claim], level: float
) -> Evidence:
    norm = float(np.linalg.norm(np.square(target.after).mean(axis=0)))
    unseen = ROUNDING + _overfit(claims, target, source.fitting_rows)
    slack = (_excused(certified.variance_gap, certified) + unseen) * norm
    furthest = max(float(np.sqrt(np.square(np.square(r.after)).sum(axis=1).max())) for r in (source, target))
    gap = float(np.linalg.norm(np.square(source.after).mean(axis=0) - np.square(target.after).mean(axis=0)))
    tests = []
    for (s0, s1), (t0, t1) in _halves(source, target):
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
    after, before = _energies(source.after, target.after), _energies(source.before, target.before)
    gap, gap_before = source.mean_after - target.mean_after, source.mean_before - target.mean_before
    widths = _excess(source, target), 1.0
    furthest = max(w * float(e.max()) for w, e in zip(widths, after, strict=True))
    unseen = ROUNDING + _overfit(claims, target, source.fitting_rows)
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
    rows, widths = (source, target), (_excess(source, target), 1.0)

    def test(left: Sequence[Vector], was: Sequence[Vector], sign: float, most: float) -> Evidence:
        return contrast(
            min(max(sign * _difference(left), 0.0), most),
            claimed=slack,
            effect=SHARE * abs(_difference(was)),
            noise=_noise(left, rows, furthest, widths),
            level=level,
        )

    if all(len(r.after) >= MANY_ROWS for r in rows):
        return test(after, before, np.sign(_difference(after)), gap)
    inner, inner_before = [_trimmed(s) for s in after], [_trimmed(s) for s in before]
    untouched = _difference(inner_before)
    sign, noise = np.sign(untouched), _noise(inner_before, rows, furthest)
    tests = [
        test(after, before, sign, gap),
        test(inner, inner_before, sign, np.inf),
        contrast(untouched, claimed=0.0, effect=abs(untouched), noise=noise, level=level),
    ]
    return replace(tests[0], p_value=max(e.p_value for e in tests), power=min(e.power for e in tests))


def _trimmed(scores: Vector) -> Vector:
    """Return the scores without the `TRIM` share of them that lies furthest from their median."""
    kept = len(scores) - int(np.ceil(TRIM * len(scores)))
    order = np.argsort(np.abs(scores - np.median(scores)), kind="stable")
    inner: Vector = scores[order[: max(kept, 2)]]
    return inner


def _excused(claimed: float, certified: PairRecord) -> float:
    """Return how much of a certified relative gap counts: what no map avoids, what shrinkage moved, and rounding."""
    return min(claimed, certified.residual_bound + certified.shrinkage_moved + NEGLIGIBLE)


def _difference(scores: Sequence[Vector]) -> float:
    return float(scores[0].mean() - scores[1].mean())


def _energies(*samples: Matrix) -> list[Vector]:
    return [np.square(X).sum(axis=1) for X in samples]


def _quadratic(X: Matrix, C: Matrix) -> Vector:
    """Return xᵀSx per row x, with S = CᵀC / n."""
    if len(C) < C.shape[1]:
        return _energies(X @ C.T)[0] / len(C)
    values: Vector = np.einsum("ij,ij->i", X @ (C.T @ C / len(C)), X)
    return values


def _noise(
    scores: Sequence[Vector],
    rows: Sequence[ClassRows],
    furthest: float,
    widths: Sequence[float] = (1.0, 1.0),
) -> list[Noise]:
    seen = max(w * float(np.abs(s - s.mean()).max()) for s, w in zip(scores, widths, strict=True))
    largest = furthest if any(r.few for r in rows) else seen
    return [Noise.of(w * s, r.fitting_rows, largest=largest) for s, r, w in zip(scores, rows, widths, strict=True)]


def _noise_of_squares(
    squares: Sequence[Vector],
    rows: Sequence[ClassRows],
    furthest: float,
    widths: Sequence[float] = (1.0, 1.0),
) -> list[Noise]:
    return [
        Noise.of_squares(w**2 * s, r.fitting_rows, largest=furthest)
        for s, r, w in zip(squares, rows, widths, strict=True)
    ]


def _directions(source: ClassRows, target: ClassRows, *, squared: bool = False) -> float:
    """(tr V)² / tr V² of the covariance V of the gap of means, or with ``squared`` of the gap of covariances.

    It is 1 where all noise lies along one direction. Read off the Gram matrix of some rows, which can only lower it.
    """
    picked = [np.linspace(0, len(r.after) - 1, min(len(r.after), GRAM_ROWS)).astype(np.intp) for r in (source, target)]
    X = np.vstack([r.after[i] for r, i in zip((source, target), picked, strict=True)])
    gram = np.square(X @ X.T) if squared else X @ X.T
    # centred per class, and weighted as the classes are in V
    ends = [slice(0, len(picked[0])), slice(len(picked[0]), None)]
    weights = np.empty(len(X))
    for rows, r in zip(ends, (source, target), strict=True):
        gram[rows] -= gram[rows].mean(axis=0)
        gram[:, rows] -= gram[:, rows].mean(axis=1, keepdims=True)
        weights[rows] = np.sqrt((1 / len(r.after) + 1 / r.fitting_rows) / len(weights[rows]))
    gram *= weights
    gram *= weights[:, None]
    square = float(np.square(gram).sum())
    return float(np.trace(gram)) ** 2 / square if square > 0 else 1.0


def _excess(source: ClassRows, target: ClassRows) -> float:
    # if the claim holds the steered rows are as wide as the target's; a wider spread must not excuse itself
    return target.trace / source.trace if source.trace > target.trace > 0 else 1.0


def _overfit(claims: Sequence[Claim], target: ClassRows, fitting_rows: int) -> float:
    """Return the relative excess of spread that a map fitted on so few rows has on other rows of the same kind.

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
    # the squared norm of a sample's moments is that of the population and their sampling error
    norm -= fourth / len(squares)
    x = fourth / norm / max(fitting_rows, 1) if norm > 0 else np.inf
    return x * (1 + x)


def _halves(source: ClassRows, target: ClassRows) -> Iterator[tuple[Halves, Halves]]:
    """Yield (learn, test) rows of both classes, then the halves changed over; the same ones every time."""
    rng = np.random.default_rng(0)
    s, t = (np.array_split(rng.permutation(len(rows.after)), 2) for rows in (source, target))
    yield (s[0], s[1]), (t[0], t[1])
    yield (s[1], s[0]), (t[1], t[0])


Test = Callable[[ClassRows, ClassRows, PairRecord, Sequence[Claim], float], Evidence]
TESTS: Mapping[Claim, Test] = {
    "means": _means,
    "covariances": _covariances,
    "variances": _variances,
    "neighbours": _neighbours,
}
