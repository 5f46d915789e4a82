"""Intervals of accuracy and TPR gap for many predictions of the same rows, by resampling cells of equal rows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Mask, Matrix, Vector
from repsurgery.errors import LabelError
from repsurgery.metrics.bootstrap import Bootstrapped, check_resampling, intervals_of
from repsurgery.metrics.cells import Codes, encode_labels, predicted_codes, two_groups
from repsurgery.metrics.rates import gaps_of

__all__ = ["FairnessIntervals", "fairness_intervals"]

RESAMPLES = 64
"""Resamples that are drawn together."""


@dataclass(frozen=True, slots=True)
class FairnessIntervals:
    """Accuracy and root mean square TPR gap of one set of predictions, over all classes and over predicted ones."""

    accuracy: Bootstrapped
    tpr_gap_rms: Bootstrapped
    tpr_gap_rms_predicted: Bootstrapped | None
    """None where no class with both groups was ever predicted correctly, by the prediction or by the reference."""


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Rows that no prediction and no measure can tell apart, counted.

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
            # numbered anew each time, so that many predictions do not overflow the codes
            _, codes = np.unique(2 * codes + right, return_inverse=True)
        _, first, counts = np.unique(codes, return_index=True, return_counts=True)
        return cls(counts, kind[first], correct[first], classes)

    def measures(self, draws: NDArray[np.int64]) -> tuple[Matrix, Matrix, Matrix]:
        """Return accuracy and RMS gap over all and over predicted classes, (r, m) each; NaN where there is no gap.

        ``draws`` (r, c) are rows per cell. The predicted classes are those of the sample, in every resample.
        """
        draws = draws.astype(np.float64)
        member = (self.kind[:, None] == np.arange(2 * self.classes)).astype(np.float64)
        totals = draws @ member
        accuracy, rms, predicted = [], [], []
        for right in self.correct.T:
            hits = draws[:, right] @ member[right]
            accuracy.append(hits.sum(axis=1) / totals.sum(axis=1))
            shape = (len(draws), self.classes, 2)
            gaps = gaps_of(hits.reshape(shape), totals.reshape(shape))
            rms.append(_rms(gaps))
            ever = np.isin(np.arange(self.classes), self.kind[right] // 2)
            predicted.append(_rms(gaps[:, ever]))
        return np.column_stack(accuracy), np.column_stack(rms), np.column_stack(predicted)


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

    Rows of the same class and group on which the same predictions are right are interchangeable, so the counts of such
    cells are resampled instead of rows: the law is the same (test_cells_have_the_law_of_resampled_rows), and the cost
    does not grow with the rows. Every resample is the same for all predictions, so that differences are paired.

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
    >>> found = fairness_intervals(y, {"base": [0] * 100, "all right": y}, z)
    >>> found["all right"].accuracy.difference.value, found["base"].tpr_gap_rms.estimate.high
    (0.5, 0.0)
    """
    caller = "fairness_intervals"
    check_resampling(predictions, resamples, level, reference, seed)
    classes, codes = encode_labels(y, caller=caller)
    group = two_groups(concept, len(codes), caller=caller)
    hits = [predicted_codes(classes, y_hat, len(codes), caller=caller) == codes for y_hat in predictions.values()]
    cells = Cells.of(codes, group, np.column_stack(hits), len(classes))
    values = cells.measures(cells.counts[None])
    if np.isnan(values[1]).any():
        raise LabelError(f"{caller} found no class with rows of both groups; there is nothing to compare.")
    drawn = _resampled(cells, resamples, seed)
    accuracy, rms, predicted = (
        _by_name(list(predictions), value[0], draws, level, reference)
        for value, draws in zip(values, drawn, strict=True)
    )
    return {
        name: FairnessIntervals(
            accuracy[name], _not_below_zero(rms[name]), _not_below_zero(predicted[name]) if name in predicted else None
        )
        for name in predictions
    }


def _by_name(
    names: list[str], values: Vector, draws: Matrix, level: float, reference: str | None
) -> dict[str, Bootstrapped]:
    known = {name: i for i, name in enumerate(names) if np.isfinite(values[i])}
    if reference is not None and reference not in known:
        return {}
    return intervals_of(
        {name: values[i] for name, i in known.items()},
        {name: draws[:, i] for name, i in known.items()},
        level,
        reference,
    )


def _not_below_zero(rms: Bootstrapped) -> Bootstrapped:
    return replace(rms, estimate=replace(rms.estimate, low=max(0.0, rms.estimate.low)))


def _resampled(cells: Cells, resamples: int, seed: int) -> list[Matrix]:
    rng = np.random.default_rng(seed)
    n = int(cells.counts.sum())
    parts = [
        cells.measures(rng.multinomial(n, cells.counts / n, size=min(RESAMPLES, resamples - start)))
        for start in range(0, resamples, RESAMPLES)
    ]
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def _rms(gaps: Matrix) -> Vector:
    """Return the root mean square of each row of gaps (r, K) over those that are known; NaN where none is."""
    known = ~np.isnan(gaps)
    squares = np.where(known, gaps, 0.0)
    counts = known.sum(axis=1)
    means = np.divide((squares**2).sum(axis=1), counts, out=np.full(len(gaps), np.nan), where=counts > 0)
    rms: Vector = np.sqrt(means)
    return rms
