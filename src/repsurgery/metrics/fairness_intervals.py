"""Intervals of accuracy and TPR gap for many predictions of the same rows, by resampling counts of equal rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from repsurgery.arrays import Mask, Matrix, Vector
from repsurgery.errors import LabelError
from repsurgery.metrics.bootstrap import Bootstrapped, check_resampling
from repsurgery.metrics.cells import Codes, encode_labels, predicted_codes, two_groups
from repsurgery.metrics.intervals import (
    Correction,
    Interval,
    defined,
    inflated_interval,
    paired_share_interval,
    share_interval,
)
from repsurgery.metrics.rates import gaps_of
from repsurgery.metrics.significance import SWAPS, change_p_value, inverted_p_value, tail_p_value

__all__ = ["FairnessIntervals", "fairness_intervals"]

RESAMPLES = 64
"""Resamples that are drawn at once."""


@dataclass(frozen=True, slots=True)
class FairnessIntervals:
    """Accuracy and root mean square TPR gap of one set of predictions, over all classes and over predicted ones."""

    accuracy: Bootstrapped
    tpr_gap_rms: Bootstrapped
    tpr_gap_rms_predicted: Bootstrapped | None
    """None if no class with both groups was ever predicted correctly, by the prediction or by the reference."""


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Counts of rows that are equal in class, group and the correctness of every prediction.

    Attributes
    ----------
    counts : (c,) array
        Rows in each cell.
    kind : (c,) array
        Class and group of a cell, as 2 · class + group.
    correct : (c, m) array
        Which of m predictions are right in a cell.
    classes : int
    """

    counts: NDArray[np.int64]
    kind: Codes
    correct: Mask
    classes: int

    @classmethod
    def of(cls, y: Codes, group: Codes, correct: Mask, classes: int) -> "Cells":
        """Return the cells of rows with classes ``y`` (n,), groups (n,) and correctness (n, m)."""
        kind = 2 * y + group
        codes = kind
        for right in correct.T:
            # renumbered each time, so that many predictions do not overflow the codes
            _, codes = np.unique(2 * codes + right, return_inverse=True)
        _, first, counts = np.unique(codes, return_index=True, return_counts=True)
        return cls(counts, kind[first], correct[first], classes)

    def measures(self, draws: NDArray[np.int64]) -> tuple[Matrix, Matrix]:
        """Return the RMS gap over all and over predicted classes, (r, m) each; NaN if no class has both groups.

        ``draws`` (r, c) are rows per cell. In every resample the predicted classes are those of the original sample.
        """
        shape = len(draws), self.classes, 2
        # sparse, because each cell belongs to one class and group
        totals = (draws @ self._members(np.ones(len(self.counts), dtype=bool))).reshape(shape).astype(np.float64)
        rms, predicted = [], []
        for right in self.correct.T:
            gaps = gaps_of((draws @ self._members(right)).reshape(shape).astype(np.float64), totals)
            rms.append(_rms(gaps))
            predicted.append(_rms(gaps[:, self._predicted(right)]))
        return np.column_stack(rms), np.column_stack(predicted)

    def noise(self) -> tuple[Vector, Vector]:
        """Return what sampling noise added to the squares of both RMS gaps, (m,) each.

        One row is added to hits and to misses, because a few rows that happen to agree would seem to have no noise.
        """
        member = (self.kind[:, None] == np.arange(2 * self.classes)).astype(np.int64)
        totals = self.counts @ member
        rms, predicted = [], []
        for right in self.correct.T:
            rates = ((self.counts * right) @ member + 1) / (totals + 2)
            spread = np.divide(rates * (1 - rates), totals, out=np.full(len(totals), np.nan), where=totals > 0)
            added = np.sqrt(spread.reshape(-1, 2).sum(axis=1))[None]
            rms.append(_rms(added)[0] ** 2)
            predicted.append(_rms(added[:, self._predicted(right)])[0] ** 2)
        return np.array(rms), np.array(predicted)

    def swapped(self, i: int, base: int, swaps: int, seed: int) -> tuple[Vector, Vector]:
        """Return both RMS gaps of prediction ``i`` minus those of ``base``, after random swaps, (swaps,) each."""
        rng = np.random.default_rng(seed)
        member = (self.kind[:, None] == np.arange(2 * self.classes)).astype(np.int64)
        ours, theirs = self.correct[:, i], self.correct[:, base]
        gained, lost = ((self.counts * changed) @ member for changed in (ours & ~theirs, theirs & ~ours))
        size = (swaps, 2 * self.classes)
        moved = rng.binomial(gained, 0.5, size) - rng.binomial(lost, 0.5, size)
        totals = np.broadcast_to((self.counts @ member).reshape(-1, 2), (swaps, self.classes, 2)).astype(np.float64)
        rms, predicted = [], []
        for right, by in ((ours, -moved), (theirs, moved)):
            gaps = gaps_of(((self.counts * right) @ member + by).reshape(totals.shape).astype(np.float64), totals)
            rms.append(_rms(gaps))
            predicted.append(_rms(gaps[:, self._predicted(right)]))
        return rms[0] - rms[1], predicted[0] - predicted[1]

    def _members(self, kept: Mask) -> csr_array:
        """Return 1 for each kept cell at its class and group, (c, 2 · classes)."""
        (cells,) = np.nonzero(kept)
        entries = np.ones(len(cells), dtype=np.int64), (cells, self.kind[cells])
        return csr_array(entries, shape=(len(self.kind), 2 * self.classes))

    def _predicted(self, right: Mask) -> Mask:
        return np.isin(np.arange(self.classes), self.kind[right] // 2)


def fairness_intervals(
    y: Any,
    predictions: Mapping[str, Any],
    concept: Any,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    reference: str | None = "base",
) -> dict[str, FairnessIntervals]:
    """Return intervals of `accuracy`, `tpr_gap_rms` and `tpr_gap_rms_predicted`, and of the differences to a reference.

    Rows of the same class and group on which the same predictions are right are interchangeable, so that the counts of
    such cells are resampled instead of rows: the distribution is the same (test_cells_have_the_law_of_resampled_rows),
    and the cost does not grow with the rows. Every resample is the same for all predictions, so that differences are
    paired. Accuracy is a share: its interval is exact, and so is the test of its change (McNemar's). Sampling noise
    inflates the RMS gap: its interval covers both the average gap of samples of this size and the gap without noise. A
    change is significant only by both tests: inverting the interval of the difference, and random swaps of predictions.

    Guarantees
    ----------
    Every interval contains its value, and intervals of the RMS gap cover the population's gap
    (test_intervals_of_the_rms_gap_cover_the_populations).

    Parameters
    ----------
    y : (n,) labels
    predictions : mapping of name to (n,) labels
    concept : (n,) labels of exactly two values
    resamples, level, seed
        As in `paired_bootstrap`.
    reference : str or None
        The name of the prediction that is subtracted from the others.

    Examples
    --------
    >>> from repsurgery.metrics import fairness_intervals
    >>> y, z = [0, 1] * 50, ["f", "f", "m", "m"] * 25
    >>> results = fairness_intervals(y, {"base": [0] * 100, "all right": y}, z)
    >>> results["all right"].accuracy.difference.value, results["base"].tpr_gap_rms.estimate.high
    (0.5, 0.0)
    """
    caller = "fairness_intervals"
    check_resampling(predictions, resamples, level, reference, seed)
    classes, codes = encode_labels(y, caller=caller)
    group = two_groups(concept, len(codes), caller=caller)
    hits = [predicted_codes(classes, y_hat, len(codes), caller=caller) == codes for y_hat in predictions.values()]
    cells = Cells.of(codes, group, np.column_stack(hits), len(classes))
    values = [value[0] for value in cells.measures(cells.counts[None])]
    if np.isnan(values[0]).any():
        raise LabelError(
            f"{caller} found no class with rows of both groups; give rows of both groups in at least one class."
        )
    base = None if reference is None else list(predictions).index(reference)
    others = [] if base is None else [i for i in range(len(predictions)) if i != base]
    drawn = max(SWAPS, resamples)
    swaps = [(i, cells.swapped(i, base, drawn, seed)) for i in others if base is not None]
    rms, predicted = (
        _gaps(list(predictions), *of, {i: null[which] for i, null in swaps}, level, reference)
        for which, of in enumerate(zip(values, _resampled(cells, resamples, seed), cells.noise(), strict=True))
    )
    return {
        name: FairnessIntervals(_accuracy(cells, i, base, level), rms[name], predicted.get(name))
        for i, name in enumerate(predictions)
    }


def _accuracy(cells: Cells, i: int, base: int | None, level: float) -> Bootstrapped:
    n, right = int(cells.counts.sum()), cells.correct[:, i]
    estimate = share_interval(int(cells.counts[right].sum()), n, level)
    if base is None or base == i:
        return Bootstrapped(estimate, None)
    before = cells.correct[:, base]
    gained, lost = (int(cells.counts[changed].sum()) for changed in (right & ~before, before & ~right))
    difference = paired_share_interval(gained, lost, n, level)
    return Bootstrapped.tested(estimate, difference, change_p_value(gained, lost), level)


def _gaps(
    names: list[str],
    values: Vector,
    draws: Matrix,
    noise: Vector,
    swaps: Mapping[int, Vector],
    level: float,
    reference: str | None,
) -> dict[str, Bootstrapped]:
    known = {name: i for i, name in enumerate(names) if np.isfinite(values[i])}
    if reference is not None and reference not in known:
        return {}
    results = {}
    for name, i in known.items():
        usable = defined(name, draws[:, i])
        bounds = inflated_interval(float(values[i]), usable, level, noise[i])
        estimate = Interval(float(values[i]), *bounds, len(draws) - len(usable))
        results[name] = Bootstrapped(estimate, None)
        if reference is not None and i in swaps:
            pair = [i, known[reference]]
            difference, p_value = _change(name, values[pair], draws[:, pair], noise[pair], level)
            # resampling overstates the evidence of few changed rows; swapping them does not
            p_value = max(p_value, tail_p_value(difference.value, swaps[i]))
            results[name] = Bootstrapped.tested(estimate, difference, p_value, level)
    return results


def _change(name: str, values: Vector, draws: Matrix, noise: Vector, level: float) -> tuple[Interval, float]:
    """Return the interval of the first gap minus the second and its p-value, each valid with and without noise.

    Noise adds to the squares of both gaps, and more to the gap of the less accurate predictions.
    """
    both = draws[np.isfinite(draws).all(axis=1)]
    defined(name, both[:, 0])
    once = (both**2).mean(axis=0) - values**2
    moved = [np.sqrt(np.maximum(both**2 - by, 0.0)) for by in (once, once + np.maximum(once, noise))]
    changes = [gaps[:, 0] - gaps[:, 1] for gaps in moved]
    value = float(values[0] - values[1])
    ends = np.quantile(changes, [(1 - level) / 2, (1 + level) / 2], axis=1)
    low, high = float(min(ends[0].min(), value)), float(max(ends[1].max(), value))
    p_value = max(inverted_p_value(change, Correction(), np.zeros(1)) for change in changes)
    return Interval(value, low, high, len(draws) - len(both)), p_value


def _resampled(cells: Cells, resamples: int, seed: int) -> list[Matrix]:
    rng = np.random.default_rng(seed)
    n = int(cells.counts.sum())
    parts = [
        cells.measures(rng.multinomial(n, cells.counts / n, size=min(RESAMPLES, resamples - start)))
        for start in range(0, resamples, RESAMPLES)
    ]
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def _rms(gaps: Matrix) -> Vector:
    """Return the root mean square of each row of gaps (r, K), ignoring NaN; NaN if all are."""
    known = ~np.isnan(gaps)
    squares = np.where(known, gaps, 0.0)
    counts = known.sum(axis=1)
    means = np.divide((squares**2).sum(axis=1), counts, out=np.full(len(gaps), np.nan), where=counts > 0)
    rms: Vector = np.sqrt(means)
    return rms
