"""One test per claim: what two classes of rows say of equal means, covariances, variances and neighbours.

Each claim is tested along the gap that was there before, where what a map leaves of it shows first; the direction is
learned on one half of the rows and tested on the other. Norms are tested too, for what moved elsewhere.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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
    allowed = certified.mean_gap + ROUNDING * scale
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
    energies = _energies(source.after, target.after)
    widths = _excess(source, target), 1.0
    furthest = max(w * float(e.max()) for w, e in zip(widths, energies, strict=True))
    slack = ROUNDING + _overfit(claims, target, source.fitting_rows)
    norm = float(np.sqrt(T.squared_norm))
    allowed, unseen = (certified.covariance_gap + slack) * norm, slack * norm
    squares = [np.maximum(np.square(e) - m.squared_norm, 0.0) for e, m in zip(energies, (S, T), strict=True)]
    gap = covariance_distance(S, T)
    tests = [
        norm_of(
            gap,
            claimed=allowed,
            effect=SHARE * covariance_distance(Moments.of(source.before), Moments.of(target.before)) - unseen,
            noise=_noise_of_squares(squares, (source, target), furthest, widths),
            directions=_directions(source, target, squared=True),
            level=level / 3,
        )
    ]
    for (s0, s1), (t0, t1) in _halves(source, target):
        learn = source.before[s0], target.before[t0]
        length = covariance_distance(*(Moments.of(rows) for rows in learn)) or 1.0

        def along(X: Matrix, learn: tuple[Matrix, Matrix] = learn, length: float = length) -> Vector:
            return (_quadratic(X, learn[0]) - _quadratic(X, learn[1])) / length

        tests.append(_along(along, source, target, (s1, t1), gap, (allowed, unseen), furthest, level / 3))
    return either(tests)


def _variances(
    source: ClassRows, target: ClassRows, certified: PairRecord, claims: Sequence[Claim], level: float
) -> Evidence:
    slack = ROUNDING + _overfit(claims, target, source.fitting_rows)
    norm = float(np.linalg.norm(np.square(target.after).mean(axis=0)))
    allowed, unseen = (certified.variance_gap + slack) * norm, slack * norm
    furthest = max(float(np.sqrt(np.square(np.square(r.after)).sum(axis=1).max())) for r in (source, target))
    gap = float(np.linalg.norm(np.square(source.after).mean(axis=0) - np.square(target.after).mean(axis=0)))
    tests = []
    for (s0, s1), (t0, t1) in _halves(source, target):
        u = np.square(source.before[s0]).mean(axis=0) - np.square(target.before[t0]).mean(axis=0)
        u /= float(np.linalg.norm(u)) or 1.0

        def along(X: Matrix, u: Vector = u) -> Vector:
            return np.square(X) @ u

        tests.append(_along(along, source, target, (s1, t1), gap, (allowed, unseen), furthest, level / 2))
    return either(tests)


def _neighbours(
    source: ClassRows, target: ClassRows, certified: PairRecord, claims: Sequence[Claim], level: float
) -> Evidence:
    after, before = _energies(source.after, target.after), _energies(source.before, target.before)
    gap, gap_before = source.mean_after - target.mean_after, source.mean_before - target.mean_before
    slack = ROUNDING + _overfit(claims, target, source.fitting_rows)
    widths = _excess(source, target), 1.0
    furthest = max(w * float(e.max()) for w, e in zip(widths, after, strict=True))
    untouched = abs(_neighbour_bias(before, gap_before, [1 / len(r.after) for r in (source, target)]))
    return contrast(
        _neighbour_bias(after, gap, [1 / len(r.after) + 1 / r.fitting_rows for r in (source, target)]),
        claimed=certified.ebbn + slack * target.trace,
        effect=SHARE * untouched - slack * target.trace,
        noise=_noise(after, (source, target), furthest, widths),
        level=level,
    )


def _neighbour_bias(energies: Sequence[Vector], gap: Vector, per_row: Sequence[float]) -> float:
    traces = [float(e.sum()) / (len(e) - 1) for e in energies]
    sampling = sum(trace * r for trace, r in zip(traces, per_row, strict=True))
    return traces[0] - traces[1] - max(float(gap @ gap) - sampling, 0.0)


def _along(
    scores: Callable[[Matrix], Vector],
    source: ClassRows,
    target: ClassRows,
    rows: Halves,
    gap: float,
    slack: tuple[float, float],
    furthest: float,
    level: float,
) -> Evidence:
    after = [scores(r.after[i]) for r, i in zip((source, target), rows, strict=True)]
    before = [scores(r.before[i]) for r, i in zip((source, target), rows, strict=True)]
    noise = _noise(after, (source, target), furthest, (_excess(source, target), 1.0))
    allowed, unseen = slack
    effect = SHARE * _difference(before) - unseen
    left = min(abs(_difference(after)), gap)
    return contrast(left, claimed=allowed, effect=effect, noise=noise, level=level)


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
