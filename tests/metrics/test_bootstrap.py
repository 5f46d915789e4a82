import numpy as np
import pytest

from repsurgery import metrics
from repsurgery.errors import DataError, LabelError, ParameterError
from repsurgery.metrics import fairness_intervals, tpr_gap_noise, tpr_gap_rms
from repsurgery.metrics.bootstrap import Interval
from repsurgery.metrics.fairness_intervals import Cells


def mean_of(x):
    return lambda w: w @ x / w.sum()


def predicted(seed=0, n=600, classes=4, methods=3):
    """Predictions that are right for 4 of 5 rows of one group and 3 of 5 of the other."""
    rng = np.random.default_rng(seed)
    y, z = rng.integers(classes, size=n), rng.integers(2, size=n)
    names = ["base", *(f"method {i}" for i in range(1, methods))]
    rights = [rng.random(n) < np.where(z, 0.8, 0.6) for _ in names]
    return y, {name: np.where(right, y, y + 1) for name, right in zip(names, rights, strict=True)}, z


def test_the_interval_of_a_mean_has_its_standard_error():
    x = np.random.default_rng(1).exponential(size=2000)
    found = metrics.paired_bootstrap({"x": mean_of(x)}, 2000, resamples=2000, level=0.6827)["x"].estimate
    # a quantile of 2,000 resamples is off by some 3 % of a standard error
    assert (found.high - found.low) / 2 == pytest.approx(x.std() / np.sqrt(2000), rel=0.1)


def test_differences_are_paired():
    rng = np.random.default_rng(2)
    x = rng.normal(size=400)
    y = x + 0.01 * rng.normal(size=400) + 0.1
    found = metrics.paired_bootstrap({"x": mean_of(x), "y": mean_of(y)}, 400, reference="x")
    assert found["x"].difference is None
    difference = found["y"].difference
    assert difference.value == pytest.approx(y.mean() - x.mean())
    # each mean is uncertain by .05, their difference by .0005
    assert difference.high - difference.low < 0.05 * (found["y"].estimate.high - found["y"].estimate.low)
    assert difference.low < difference.value < difference.high


def test_undefined_resamples_are_counted_and_left_out():
    x = np.arange(5.0)

    def sometimes(w):
        if w[0] == 0:
            raise LabelError("the first row is needed")
        return w @ x / w.sum() if w[1] else float("nan")

    found = metrics.paired_bootstrap({"mean": mean_of(x), "sometimes": sometimes}, 5, reference="mean")
    assert found["mean"].estimate.undefined == 0
    # P(row 0 or row 1 not drawn) = 2 (4/5)^5 − (3/5)^5 = .578; five standard errors of 1,000 draws
    assert found["sometimes"].estimate.undefined == pytest.approx(578, abs=80)
    assert found["sometimes"].difference.undefined == found["sometimes"].estimate.undefined
    assert np.isfinite([found["sometimes"].estimate.low, found["sometimes"].difference.high]).all()


def test_the_seed_decides():
    x = np.random.default_rng(3).normal(size=50)
    runs = [metrics.paired_bootstrap({"x": mean_of(x)}, 50, resamples=50, seed=s)["x"] for s in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


def test_fairness_values_are_those_of_the_measures():
    y, predictions, z = predicted()
    found = metrics.fairness_intervals(y, predictions, z, resamples=20)
    for name, y_hat in predictions.items():
        assert found[name].accuracy.estimate.value == pytest.approx(metrics.accuracy(y, y_hat), rel=1e-12)
        assert found[name].tpr_gap_rms.estimate.value == pytest.approx(metrics.tpr_gap_rms(y, y_hat, z), rel=1e-12)
    differences = found["method 1"], found["base"]
    gap = differences[0].tpr_gap_rms
    assert gap.difference.value == pytest.approx(gap.estimate.value - found["base"].tpr_gap_rms.estimate.value)
    assert found["base"].accuracy.difference is None


def test_cells_are_exact_for_every_resample_of_rows():
    y, predictions, z = predicted(n=80, classes=6)
    correct = np.column_stack([y_hat == y for y_hat in predictions.values()])
    cells = Cells.of(y, z, correct, 6)
    assert cells.counts.sum() == 80
    key = {(k, *c): i for i, (k, c) in enumerate(zip(cells.kind, cells.correct, strict=True))}
    cell = np.array([key[(2 * a + b, *c)] for a, b, c in zip(y, z, correct, strict=True)])
    rng = np.random.default_rng(4)
    for _ in range(20):
        w = np.bincount(rng.integers(80, size=80), minlength=80)
        rms, _ = cells.measures(np.bincount(cell, w, len(cells.counts))[None])
        for i, y_hat in enumerate(predictions.values()):
            assert rms[0, i] == pytest.approx(metrics.tpr_gap_rms(y, y_hat, z, sample_weight=w), rel=1e-12)


def test_cells_have_the_law_of_resampled_rows():
    y, predictions, z = predicted()
    cells = Cells.of(y, z, np.column_stack([y_hat == y for y_hat in predictions.values()]), 4)
    rng = np.random.default_rng(5)
    drawn, _ = cells.measures(rng.multinomial(600, cells.counts / 600, size=4000))
    rows = [rng.integers(600, size=600) for _ in range(800)]
    for i, y_hat in enumerate(predictions.values()):
        plain = [metrics.tpr_gap_rms(y[r], y_hat[r], z[r]) for r in rows]
        ours, theirs = (np.quantile(law, [0.025, 0.975]) for law in (drawn[:, i], plain))
        # the .025 quantile of 800 draws has a standard error of .095 σ, 95 % are 3.92 σ wide: four standard errors
        assert np.abs(ours - theirs).max() < 0.1 * (theirs[1] - theirs[0])


def test_equal_predictions_differ_by_nothing_in_every_resample():
    y, predictions, z = predicted()
    found = metrics.fairness_intervals(y, {"base": predictions["base"], "same": predictions["base"]}, z)
    for measure in (found["same"].accuracy, found["same"].tpr_gap_rms):
        assert measure.difference.value == 0 and measure.p_value == 1.0
        assert measure.estimate.high > measure.estimate.low
    assert found["same"].tpr_gap_rms.difference == Interval(0.0, 0.0, 0.0, 0)
    # none of 600 rows changed: fewer than 1 in 100 would
    assert -0.01 < found["same"].accuracy.difference.low < 0 < found["same"].accuracy.difference.high < 0.01


def test_a_resample_that_loses_a_group_is_counted():
    # one class, whose second group is a single row: lost with probability (1 − 1/20)^20 = .358
    y, z = [0] * 20, ["f"] * 19 + ["m"]
    found = metrics.fairness_intervals(y, {"base": [0] * 10 + [1] * 10}, z)["base"]
    assert found.tpr_gap_rms.estimate.undefined == pytest.approx(358, abs=80)
    assert found.accuracy.estimate.undefined == 0
    assert np.isfinite(found.tpr_gap_rms.estimate.high)


def test_many_predictions_do_not_overflow_the_cells():
    y, predictions, z = predicted(n=300, methods=70)
    found = metrics.fairness_intervals(y, predictions, z, resamples=2)
    assert len(found) == 70
    last = predictions["method 69"]
    assert found["method 69"].tpr_gap_rms.estimate.value == pytest.approx(metrics.tpr_gap_rms(y, last, z), rel=1e-12)


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({"resamples": 0}, ParameterError, "at least 1"),
        ({"level": 95}, ParameterError, "between 0 and 1"),
        ({"reference": "best"}, ParameterError, r"one of \['base'\]"),
    ],
)
def test_unusable_parameters_are_refused(keywords, error, message):
    with pytest.raises(error, match=message):
        metrics.paired_bootstrap({"base": lambda w: 1.0}, 3, **keywords)
    with pytest.raises(error, match=message):
        metrics.fairness_intervals([0, 0], {"base": [0, 0]}, ["f", "m"], **keywords)


def test_what_has_no_value_is_refused():
    with pytest.raises(DataError, match="'nan' is nan on the original rows"):
        metrics.paired_bootstrap({"nan": lambda w: float("nan")}, 3)
    with pytest.raises(DataError, match="any of 9 resamples"):
        metrics.paired_bootstrap({"once": lambda w: 1.0 if w.min() == 1 else np.inf}, 20, resamples=9)
    with pytest.raises(ParameterError, match="at least one name"):
        metrics.fairness_intervals([0, 0], {}, ["f", "m"])
    with pytest.raises(ParameterError, match="number of rows"):
        metrics.paired_bootstrap({"x": lambda w: 1.0}, 0)
    with pytest.raises(LabelError, match="give rows of both groups in at least one class"):
        metrics.fairness_intervals([0, 1], {"base": [0, 1]}, ["f", "m"])
    with pytest.raises(LabelError, match="for 2 rows"):
        metrics.fairness_intervals([0, 0], {"base": [0]}, ["f", "m"])


def noisy_groups(seed, n=400, classes=20):
    """Return rows of many small classes whose two groups are predicted equally well."""
    rng = np.random.default_rng(seed)
    y, z = rng.integers(classes, size=n), rng.integers(2, size=n)
    return y, np.where(rng.random(n) < 0.6, y, -1), z


def test_a_gap_that_is_noise_has_an_interval_around_its_value():
    y, y_hat, z = noisy_groups(0)
    found = fairness_intervals(y, {"base": y_hat}, z)["base"].tpr_gap_rms.estimate
    assert 0 <= found.low < found.value < found.high
    rng = np.random.default_rng(1)
    rows = [rng.integers(len(y), size=len(y)) for _ in range(200)]
    plain = [tpr_gap_rms(y[i], y_hat[i], z[i]) for i in rows]
    assert np.quantile(plain, 0.05) > found.value  # unmoved percentiles would lie above it


def test_intervals_of_a_noisy_gap_cover_what_samples_of_this_size_show():
    samples = [noisy_groups(seed) for seed in range(150)]
    expected = np.mean([tpr_gap_rms(*sample) for sample in samples])
    found = [
        fairness_intervals(y, {"base": y_hat}, z, resamples=200, seed=i)["base"].tpr_gap_rms.estimate
        for i, (y, y_hat, z) in enumerate(samples)
    ]
    inside = np.mean([f.low <= expected <= f.high for f in found])
    assert 0.88 < inside <= 1.0
    # the interval reaches down to what would be without noise, which is nothing; its upper end is for the gap as shown
    assert np.mean([f.low < 0.1 for f in found]) > 0.9
    assert np.mean([expected <= (3 * f.value + f.high) / 4 for f in found]) < 0.97


def test_the_noise_of_a_gap_is_what_equal_groups_show():
    samples = [noisy_groups(seed) for seed in range(300)]
    shown = np.mean([tpr_gap_rms(*sample) ** 2 for sample in samples])
    noise = np.mean([tpr_gap_noise(*sample) ** 2 for sample in samples])
    # a group of few rows that happen to agree shows less noise than it has, so the estimate is a little low
    assert 0.85 * shown < noise < 1.05 * shown
    y, y_hat, z = noisy_groups(0, n=40_000)
    assert tpr_gap_noise(y, y_hat, z) < 0.03
    y_hat = np.where(z == 0, y, -1)
    assert tpr_gap_rms(y, y_hat, z) > 20 * tpr_gap_noise(y, y_hat, z)
    with pytest.raises(LabelError, match="both groups"):
        tpr_gap_noise([0, 1], [0, 1], ["f", "m"])


def test_the_gap_of_predicted_classes_is_that_of_its_measure():
    y, predictions, z = predicted(classes=6)
    predictions["base"] = np.where(predictions["base"] == 3, 0, predictions["base"])  # one class is never predicted
    found = fairness_intervals(y, predictions, z)
    for name, y_hat in predictions.items():
        expected = metrics.tpr_gap_rms_predicted(y, y_hat, z)
        assert found[name].tpr_gap_rms_predicted.estimate.value == pytest.approx(expected, abs=1e-12)
    assert found["base"].tpr_gap_rms_predicted.estimate.value > found["base"].tpr_gap_rms.estimate.value
    wrong = fairness_intervals(y, {"base": predictions["base"], "wrong": y + 1}, z)
    assert wrong["wrong"].tpr_gap_rms_predicted is None


def test_no_interval_of_a_root_mean_square_reaches_below_zero():
    y, y_hat, z = noisy_groups(3, n=4000, classes=2)
    y_hat = np.where(np.random.default_rng(0).random(4000) < 0.999, y, -1)
    found = fairness_intervals(y, {"base": y_hat}, z)["base"].tpr_gap_rms.estimate
    assert found.low == 0.0 < found.value
