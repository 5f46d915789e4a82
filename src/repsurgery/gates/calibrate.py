"""Move the threshold of a linear gate to a stated share of false alarms."""

from typing import Any

import numpy as np

from repsurgery.arrays import Label, Vector, check_rows, require_finite
from repsurgery.errors import LabelError, ParameterError
from repsurgery.gates.rules import LinearGate

__all__ = ["calibrate_gate"]


def calibrate_gate(gate: LinearGate, X: Any, *, source: Label, rate: float) -> LinearGate:
    """Return ``gate`` with the threshold at which it assigns a share ``rate`` of the rows ``X`` to ``source``.

    Pass rows that are not of the source, taken where the gate will be used: then ``rate`` is the share of false alarms.

    Parameters
    ----------
    gate : LinearGate
        A gate of two classes.
    X : (n, d) array
    source : label
    rate : float
        Between 0 and 1.

    Guarantees
    ----------
    The share on X never exceeds the rate (test_a_calibrated_gate_never_exceeds_its_rate); it falls short by less than
    one row where no two rows have equal scores (test_a_calibrated_gate_has_its_rate), and by the tied rows elsewhere.

    Examples
    --------
    >>> import numpy as np
    >>> import repsurgery as rs
    >>> X, z = np.array([[0.0], [1.0], [9.0], [10.0]]), ["clean", "clean", "toxic", "toxic"]
    >>> gate = rs.build_gate("nearest-mean", X, z)
    >>> gate = rs.calibrate_gate(gate, np.arange(10.0)[:, None], source="toxic", rate=0.2)
    >>> gate.predict([[7.4], [7.6]]).tolist()
    ['clean', 'toxic']
    """
    if len(gate.classes) != 2 or len(gate.coef) != 1:
        raise ParameterError(
            f"A gate of {len(gate.classes)} classes has no single threshold. Calibrate a gate of two classes."
        )
    if source not in gate.classes:
        raise LabelError(f"source is {source!r}; the classes of the gate are {list(gate.classes)}.")
    if not 0 <= rate <= 1:
        raise ParameterError(f"rate is {rate!r}; it must be a share between 0 and 1.")
    rows = check_rows(X, dim=gate.coef.shape[1], caller="calibrate_gate")
    require_finite(rows, caller="calibrate_gate")
    X64 = np.asarray(rows, dtype=np.float64)
    scores = np.sort(X64 @ gate.coef[0])
    # sums in another order differ by this much, so scores that are closer count as equal
    rounding = gate.coef.shape[1] * np.finfo(np.float64).eps * float((np.abs(X64) @ np.abs(gate.coef[0])).max())
    threshold = _threshold(scores, int(rate * len(scores) + 1e-9), rounding, second=source == gate.classes[1])
    return LinearGate(gate.classes, gate.coef, np.array([-threshold]))


def _threshold(scores: Vector, count: int, rounding: float, *, second: bool) -> float:
    """Return a threshold between sorted ``scores`` that at most ``count`` of them reach (or, for the first, miss)."""
    n, apart = len(scores), 2 * max(rounding, float(np.finfo(np.float64).tiny))
    splits = np.concatenate([[0], 1 + np.flatnonzero(np.diff(scores) > 2 * apart), [n]])
    # a score that is not negative means the second class: with ``split`` rows below the threshold it gets n − split
    split = int(splits[splits >= n - count].min() if second else splits[splits <= count].max())
    if split == 0:
        return float(scores[0] - apart)
    if split == n:
        return float(scores[-1] + apart)
    return float(scores[split - 1] + (scores[split] - scores[split - 1]) / 2)
