"""Vector scaling: counts agree with the labels, and rare classes are left alone."""

import numpy as np
import pytest

from repsurgery.studies.fairness.rivals import calibration
from repsurgery.studies.fairness.rivals.calibration import PENALTY, VectorScaling


def skewed(seed=0, n=5000, rare=0.004):
    """Return probabilities that are too sure and take classes for more frequent than they are, and true classes."""
    rng = np.random.default_rng(seed)
    prior = np.array([0.5, 0.3, 0.2 - rare, rare])
    y = rng.choice(4, p=prior, size=n)
    logits = np.log(prior) + rng.normal(size=(n, 4))
    logits[np.arange(n), y] += 1.0  # the exact posterior of these logits
    wrong = 2.0 * logits + np.array([0.0, 1.0, -1.0, -1.0])
    P = np.exp(wrong - wrong.max(axis=1, keepdims=True))
    return P / P.sum(axis=1, keepdims=True), y


def test_expected_counts_are_true_counts_up_to_the_penalty():
    P, y = skewed()
    scaling = VectorScaling.fit(P, y)
    counts = np.bincount(y)
    # L-BFGS stops at a gradient of 1e-9 per row or at a loss that is flat to 1e-15: far below a hundredth of a row
    assert scaling(P).sum(axis=0) - counts == pytest.approx(-PENALTY * scaling.shifts, abs=0.01)
    assert np.abs(P.sum(axis=0) - counts).max() > 50
    assert scaling.factor == pytest.approx(0.5, abs=0.05)


def test_calibration_lowers_the_log_loss():
    P, y = skewed(1)
    each = np.arange(len(y))
    assert -np.log(VectorScaling.fit(P, y)(P)[each, y]).mean() < -np.log(P[each, y]).mean() - 0.05


def test_a_rare_class_without_rows_stays_possible(monkeypatch):
    P, y = skewed(2, n=250)
    assert not (y == 3).any()
    # its shift is minus its expected rows over the penalty, which are fewer than one of 250 here
    assert -1 < VectorScaling.fit(P, y).shifts[3] < 0
    monkeypatch.setattr(calibration, "PENALTY", 1e-6)
    assert VectorScaling.fit(P, y).shifts[3] < -5


def test_probabilities_stay_probabilities():
    P, y = skewed(3)
    P[0] = [1.0, 0.0, 0.0, 0.0]
    Q = VectorScaling.fit(P, y)(P)
    assert np.isfinite(Q).all() and (Q >= 0).all()
    assert Q.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
