"""Move the threshold of a linear gate to a stated share of false alarms."""

from typing import Any

import numpy as np

from repsurgery.arrays import Label, check_rows, require_finite
from repsurgery.errors import LabelError, ParameterError
from repsurgery.gates.rules import LinearGate

__all__ = ["calibrate_gate"]


def calibrate_gate(gate: LinearGate, X: Any, *, source: Label, rate: float) -> LinearGate:
    """Return ``gate`` with the threshold at which it takes a share ``rate`` of the rows ``X`` for ``source``.

    With rows that are not of the source, met where the gate will be used, ``rate`` is the share of needless steering.

    Parameters
    ----------
    gate : LinearGate
        Of two classes.
    X : (n, d) array
    source : label
    rate : float
        Between 0 and 1.

    Guarantees
    ----------
    The share on X is the rate, to one row (test_a_calibrated_gate_has_its_rate).

    Examples
    --------
    >>> import numpy as np
    >>> import repsurgery as rs
    >>> X, z = np.array([[0.0], [1.0], [9.0], [10.0]]), ["clean", "clean", "toxic", "toxic"]
    >>> gate = rs.MeanMatching("toxic", "clean").fit(X, z).steering_.gate
    >>> gate = rs.calibrate_gate(gate, np.arange(10.0)[:, None], source="toxic", rate=0.2)
    >>> gate.predict([[7.4], [7.6]]).tolist()
    ['clean', 'toxic']
    """
    if len(gate.classes) != 2 or len(gate.coef) != 1:
        raise ParameterError(f"A gate of {len(gate.classes)} classes has no single threshold. Calibrate one of two.")
    if source not in gate.classes:
        raise LabelError(f"source is {source!r}; the gate knows {list(gate.classes)}.")
    if not 0 <= rate <= 1:
        raise ParameterError(f"rate is {rate!r}; it must be a share between 0 and 1.")
    rows = check_rows(X, dim=gate.coef.shape[1], caller="calibrate_gate")
    require_finite(rows, caller="calibrate_gate")
    scores = np.sort((np.asarray(rows, dtype=np.float64) @ gate.coef[0]) + gate.intercept[0])
    second = source == gate.classes[1]
    # a score that is not negative means the second class; so the threshold lies between two rows
    count = round(rate * len(scores))
    split = len(scores) - count if second else count
    return LinearGate(gate.classes, gate.coef, gate.intercept - _between(scores, split))


def _between(scores: np.ndarray, split: int) -> float:
    if split == 0:
        return float(np.nextafter(scores[0], -np.inf))
    if split == len(scores):
        return float(np.nextafter(scores[-1], np.inf))
    return float((scores[split - 1] + scores[split]) / 2)
