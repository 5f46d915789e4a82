import sys

import numpy as np
import pytest
from fairlearn import metrics as fairlearn
from hypothesis import given, settings
from hypothesis import strategies as st

from repsurgery import metrics
from repsurgery.errors import DataError, LabelError, MissingExtraError, ShapeError

ROUNDING = 1e-12

# professor: f 2 of 4 right, m 3 of 4 right; nurse: f 1 of 2, m 0 of 1; poet: never predicted; judge: no women
ROWS = """
professor f professor, professor f professor, professor f nurse, professor f judge,
professor m professor, professor m professor, professor m professor, professor m nurse,
nurse f nurse, nurse f judge, nurse m professor,
poet f professor, poet m nurse,
judge m judge, judge m nurse
"""
Y, Z, Y_HAT = map(list, zip(*(row.split() for row in ROWS.split(",")), strict=True))
GAPS = {"judge": None, "nurse": -1 / 2, "poet": 0.0, "professor": 1 / 4}


def labelled(rng, n=200, classes=4):
    return rng.integers(classes, size=n), rng.integers(classes, size=n), rng.integers(2, size=n)


def test_tpr_gap_by_hand():
    assert metrics.tpr_gap(Y, Y_HAT, Z) == GAPS


def test_the_gap_is_second_minus_first_group_whatever_the_labels():
    as_numbers = [{"f": 0, "m": 1}[z] for z in Z]
    as_booleans = [z == "m" for z in Z]
    turned = [{"f": "woman", "m": "man"}[z] for z in Z]
    assert metrics.tpr_gap(Y, Y_HAT, as_numbers) == metrics.tpr_gap(Y, Y_HAT, as_booleans) == GAPS
    assert metrics.tpr_gap(Y, Y_HAT, turned)["professor"] == -GAPS["professor"]


def test_rms_is_over_all_classes_with_both_groups():
    assert metrics.tpr_gap_rms(Y, Y_HAT, Z) == pytest.approx(np.sqrt((1 / 4 + 0 + 1 / 16) / 3), rel=ROUNDING)


def test_the_released_measure_drops_classes_never_predicted_rightly():
    expected = np.sqrt((1 / 4 + 1 / 16) / 2)
    assert metrics.tpr_gap_rms_predicted(Y, Y_HAT, Z) == pytest.approx(expected, rel=ROUNDING)
    assert metrics.tpr_gap_rms_predicted(Y, Y_HAT, Z) > metrics.tpr_gap_rms(Y, Y_HAT, Z)


def test_a_reference_chooses_the_classes():
    only_professors = ["professor"] * len(Y)
    assert metrics.tpr_gap_rms_predicted(Y, Y_HAT, Z, reference=only_professors) == pytest.approx(1 / 4)
    assert metrics.tpr_gap_rms_predicted(Y, Y_HAT, Z, reference=Y) == metrics.tpr_gap_rms(Y, Y_HAT, Z)


def test_a_class_that_is_predicted_but_never_true_is_only_wrong():
    assert metrics.tpr_gap([0, 0, 1, 1], [0, 7, 1, 1], ["f", "m", "f", "m"]) == {0: -1.0, 1: 0.0}
    assert metrics.accuracy([0, 0, 1, 1], [0, 7, 1, 1]) == 3 / 4


@given(st.integers(0, 2**32 - 1))
def test_weights_are_repetitions(seed):
    rng = np.random.default_rng(seed)
    y, y_hat, z = labelled(rng, n=60)
    times = rng.integers(4, size=60)
    z[:2], times[:2], y[:2] = [0, 1], 1, 0
    rows = np.repeat(np.arange(60), times)
    measures = (metrics.tpr_gap_rms, metrics.tpr_gap_rms_predicted, metrics.equalized_odds_difference)
    for measure in measures:
        weighted, repeated = measure(y, y_hat, z, sample_weight=times), measure(y[rows], y_hat[rows], z[rows])
        assert weighted == pytest.approx(repeated, abs=ROUNDING)
        assert measure(y, y_hat, z, sample_weight=2.5 * times) == pytest.approx(weighted, abs=ROUNDING)
    assert metrics.accuracy(y, y_hat, sample_weight=times) == pytest.approx(np.mean(y[rows] == y_hat[rows]))
    parity = metrics.demographic_parity_difference
    assert parity(y_hat, z, sample_weight=times) == pytest.approx(parity(y_hat[rows], z[rows]), abs=ROUNDING)
    gaps = metrics.tpr_gap(y, y_hat, z, sample_weight=times)
    known = metrics.tpr_gap(y[rows], y_hat[rows], z[rows])
    assert {c: gaps[c] for c in known} == pytest.approx(known, abs=ROUNDING)


def test_a_group_without_weight_is_a_group_without_rows():
    weight = [0 if (y, z) == ("nurse", "m") else 1 for y, z in zip(Y, Z, strict=True)]
    assert metrics.tpr_gap(Y, Y_HAT, Z, sample_weight=weight) == GAPS | {"nurse": None}
    assert metrics.tpr_gap_rms(Y, Y_HAT, Z, sample_weight=weight) == pytest.approx(np.sqrt(1 / 16 / 2))


@settings(max_examples=8)  # fairlearn takes a tenth of a second
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_two_classes_agree_with_fairlearn(seed, weighted):
    y, y_hat, z = labelled(np.random.default_rng(seed), classes=2)
    w = np.random.default_rng(seed).random(len(y)) if weighted else None
    parity = fairlearn.demographic_parity_difference(y, y_hat, sensitive_features=z, sample_weight=w)
    odds = fairlearn.equalized_odds_difference(y, y_hat, sensitive_features=z, sample_weight=w)
    names = np.array(["no", "yes"])
    assert metrics.demographic_parity_difference(names[y_hat], z, sample_weight=w) == pytest.approx(parity)
    assert metrics.equalized_odds_difference(names[y], names[y_hat], z, sample_weight=w) == pytest.approx(odds)


@settings(max_examples=3)
@given(st.integers(0, 2**32 - 1))
def test_many_classes_are_the_worst_of_fairlearns_one_against_the_rest(seed):
    y, y_hat, z = labelled(np.random.default_rng(seed), classes=3)

    def parity(rows, c):
        guess = (y_hat[rows] == c).astype(int)
        return fairlearn.demographic_parity_difference(guess, guess, sensitive_features=z[rows])

    everybody = np.full(len(y), True)
    assert metrics.demographic_parity_difference(y_hat, z) == pytest.approx(max(parity(everybody, c) for c in range(3)))
    odds = max(parity(y == true, c) for true in range(3) for c in range(3))
    assert metrics.equalized_odds_difference(y, y_hat, z) == pytest.approx(odds)


def test_odds_leave_out_a_class_without_one_group():
    y, y_hat, z = [0, 0, 0, 0, 1, 1], [0, 1, 0, 0, 1, 1], list("ffmmff")
    assert metrics.equalized_odds_difference(y, y_hat, z) == pytest.approx(1 / 2)
    # fairlearn takes the missing group's rate for 0
    assert fairlearn.equalized_odds_difference(y, y_hat, sensitive_features=z) == pytest.approx(1.0)


def test_equal_predictions_have_no_difference_and_parity_is_not_odds():
    y, z = [0, 0, 0, 1, 0, 1, 1, 1], list("ffffmmmm")
    assert metrics.equalized_odds_difference(y, y, z) == 0.0
    assert metrics.demographic_parity_difference(y, z) == pytest.approx(1 / 2)


def test_fairlearn_is_asked_for_by_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "fairlearn", None)
    for call in (
        lambda: metrics.demographic_parity_difference([0, 1], ["f", "m"]),
        lambda: metrics.equalized_odds_difference([0, 0], [0, 1], ["f", "m"]),
    ):
        with pytest.raises(MissingExtraError, match=r"pip install 'repsurgery\[fairness\]'"):
            call()
    assert metrics.demographic_parity_difference([0, 1, 2, 2], list("ffmm")) == 1.0


ALL = [metrics.tpr_gap, metrics.tpr_gap_rms, metrics.tpr_gap_rms_predicted, metrics.equalized_odds_difference]


@pytest.mark.parametrize("measure", ALL)
@pytest.mark.parametrize(
    ("y", "y_hat", "z", "error", "message"),
    [
        ([0, 1], [0], ["f", "m"], LabelError, r"shape \(1,\) for 2 rows"),
        ([0, 1], [0, 1], ["f", "m", "m"], LabelError, r"shape \(3,\) for 2 rows"),
        ([0, 1, 1], [0, 1, 1], ["f", "m", "x"], LabelError, "got a concept with 3: 'f', 'm', 'x'"),
        ([0, 1], [0, 1], ["f", "f"], LabelError, "exactly two"),
        ([0.0, np.nan], [0, 1], ["f", "m"], LabelError, "NaN"),
        ([0, 1], [0, None], ["f", "m"], LabelError, "missing"),
        ([], [], [], LabelError, "at least one row"),
        (["0", "1"], [0, 1], ["f", "m"], LabelError, "can never agree"),
    ],
)
def test_unusable_labels_are_refused(measure, y, y_hat, z, error, message):
    with pytest.raises(error, match=message):
        measure(y, y_hat, z)


@pytest.mark.parametrize("measure", ALL[1:])
def test_no_class_with_both_groups_is_an_error_not_a_zero(measure):
    with pytest.raises(LabelError, match="no class with rows of both groups"):
        measure([0, 0, 1], [0, 0, 1], ["f", "f", "m"])
    assert metrics.tpr_gap([0, 0, 1], [0, 0, 1], ["f", "f", "m"]) == {0: None, 1: None}


def test_unusable_weights_are_refused():
    with pytest.raises(ShapeError, match=r"shape \(2,\)"):
        metrics.accuracy([0], [0], sample_weight=[1, 1])
    with pytest.raises(DataError, match="zeros only"):
        metrics.tpr_gap_rms([0, 0], [0, 0], ["f", "m"], sample_weight=[0, 0])
    with pytest.raises(LabelError, match="without any weight"):
        metrics.demographic_parity_difference([0, 1], ["f", "m"], sample_weight=[1, 0])
