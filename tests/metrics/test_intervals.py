"""Intervals cover and tests err as often as they say, on data whose truth is known."""

import numpy as np
import pytest
from scipy import stats

from repsurgery import metrics
from repsurgery.errors import ParameterError
from repsurgery.metrics import Mean, fairness_intervals, holm, paired_bootstrap, tpr_gap_rms
from repsurgery.metrics.intervals import Correction, paired_share_interval
from repsurgery.metrics.significance import enough_resamples, swapped_p_value

N = 200


def mean_of(x):
    return lambda w: w @ x / w.sum()


LAWS = {
    "normal": (lambda rng: rng.normal(size=N), 0.0),
    "skewed": (lambda rng: rng.exponential(size=N), 1.0),
    "share of 1 in 50": (lambda rng: (rng.random(N) < 0.02).astype(float), 0.02),
    "share of 1 in 200": (lambda rng: (rng.random(N) < 0.005).astype(float), 0.005),
    "rare amounts": (lambda rng: (rng.random(N) < 0.1) * rng.random(N), 0.05),
    "amounts of 1 in 50": (lambda rng: (rng.random(N) < 0.02) * rng.random(N), 0.01),
    "amounts of 1 in 100": (lambda rng: (rng.random(N) < 0.01) * rng.random(N), 0.005),
    "skewed amounts of 1 in 50": (lambda rng: (rng.random(N) < 0.02) * rng.exponential(size=N), 0.02),
    "rates of 25": (lambda rng: rng.binomial(25, rng.beta(0.05, 5, size=N)) / 25, 0.05 / 5.05),
}


@pytest.mark.parametrize("name", LAWS)
def test_intervals_cover_at_200_rows(name):
    draw, truth = LAWS[name]
    trials, covered, halved = 300, 0, 0
    for seed in range(trials):
        x = Mean(draw(np.random.default_rng([seed, 1])))
        found = paired_bootstrap({"x": x}, N, seed=seed)["x"].estimate
        assert found.low <= found.value <= found.high
        covered += found.low <= truth <= found.high
        low, high = ((found.value + end) / 2 for end in (found.low, found.high))
        halved += low <= truth <= high
    # 92 % is asked for; the standard error of 300 trials is .016 there, and two of them are allowed
    assert covered / trials >= 0.92 - 2 * np.sqrt(0.92 * 0.08 / trials)
    # intervals half as wide would be noticed, but for a share whose upper end alone decides
    assert halved / trials < 0.9 or name in ("share of 1 in 200", "amounts of 1 in 100")


def test_intervals_of_paired_shares_cover():
    trials, covered = 250, {"rare": 0, "one way": 0}
    for seed in range(trials):
        rng = np.random.default_rng([seed, 2])
        before = (rng.random(N) < 0.05).astype(float)
        cases = {
            "rare": (np.where(rng.random(N) < 0.02, 1 - before, before), 0.02 * 0.9),
            "one way": (np.maximum(before, rng.random(N) < 0.01), 0.01 * 0.95),
        }
        for name, (after, truth) in cases.items():
            statistics = {"before": Mean(before), "after": Mean(after)}
            found = paired_bootstrap(statistics, N, resamples=9, seed=seed, reference="before")["after"].difference
            covered[name] += found.low <= truth <= found.high
    assert min(covered.values()) / trials >= 0.92 - 2 * np.sqrt(0.92 * 0.08 / trials)


DIFFERENCES = {
    "3 normal": (lambda rng: (rng.random(N) < 0.015) * rng.normal(size=N), 0.0),
    "6 lognormal of either sign": (
        lambda rng: (rng.random(N) < 0.03) * rng.choice([-1, 1], size=N) * rng.lognormal(size=N),
        0.0,
    ),
    "4 positive": (lambda rng: (rng.random(N) < 0.02) * rng.random(N), 0.01),
    "10 mostly positive": (lambda rng: (rng.random(N) < 0.05) * rng.normal(0.5, 0.5, size=N), 0.025),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_intervals_of_sparse_differences_cover(name):
    draw, truth = DIFFERENCES[name]
    trials, covered = 250, 0
    for seed in range(trials):
        rng = np.random.default_rng([seed, 14])
        x = rng.random(N)
        statistics = {"x": Mean(x), "y": Mean(x + draw(rng))}
        found = paired_bootstrap(statistics, N, resamples=300, seed=seed, reference="x")["y"].difference
        assert found.low <= found.value <= found.high
        covered += found.low <= truth <= found.high
    assert covered / trials >= 0.92 - 2 * np.sqrt(0.92 * 0.08 / trials)


@pytest.mark.parametrize("statistic", [lambda x: mean_of(x), lambda x: nonlinear(x)], ids=["mean", "other"])
def test_intervals_and_tests_agree(statistic):
    excluded = 0
    for seed in range(20):
        for changed in (3, 4, 5, 60):
            x = np.random.default_rng(seed).random(N)
            y = x.copy()
            y[:changed] += 0.5
            statistics = {"x": statistic(x), "y": statistic(y)}
            found = paired_bootstrap(statistics, N, resamples=200, seed=seed, reference="x")["y"]
            out = found.difference.low > 0 or found.difference.high < 0
            assert not out or found.p_value <= 0.05
            excluded += out
    assert excluded >= 20  # where 60 rows change


@pytest.mark.parametrize("changed", [1, 5])
def test_sparse_rows_are_found_whatever_their_common_value_and_scale(changed):
    x = np.random.default_rng(15).random(N) * (np.arange(N) < changed)
    one = paired_bootstrap({"x": Mean(x)}, N)["x"].estimate
    assert 0 <= one.low < one.value < one.high <= x.max()
    for shift, factor in ((3.0, 1.0), (0.0, 1e6), (-7.0, -1.0)):
        moved = paired_bootstrap({"x": mean_of(shift + factor * x)}, N)["x"].estimate
        ends = sorted([shift + factor * one.low, shift + factor * one.high])
        # BCa of mirrored values may take the neighbouring resample
        assert [moved.low, moved.high] == pytest.approx(ends, rel=1e-3)


def pairs(seed):
    """Return what two equal methods might give for the same rows."""
    rng = np.random.default_rng([seed, 3])
    shared = rng.normal(size=N)
    return {
        "normal": (shared + rng.normal(size=N), shared + rng.normal(size=N)),
        "skewed": (rng.lognormal(size=N), rng.lognormal(size=N)),
        "shares": ((rng.random(N) < 0.05).astype(float), (rng.random(N) < 0.05).astype(float)),
        "few changes": (shared, np.where(rng.random(N) < 0.03, rng.normal(size=N), shared)),
    }


def test_p_values_keep_their_level():
    trials, starred = 120, dict.fromkeys(pairs(0), 0)
    for seed in range(trials):
        for name, (x, y) in pairs(seed).items():
            found = paired_bootstrap({"x": mean_of(x), "y": mean_of(y)}, N, resamples=9, seed=seed, reference="x")
            starred[name] += found["y"].p_value <= 0.05
    # 5 %, and three standard errors of the trials
    assert max(starred.values()) / trials <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / trials)
    assert starred["normal"] > 0  # the test is exact, not merely cautious


def test_the_test_sees_a_difference():
    rng = np.random.default_rng(0)
    x = rng.normal(size=N)
    statistics = {"x": mean_of(x), "y": mean_of(x + 0.3 + rng.normal(size=N))}
    found = paired_bootstrap(statistics, N, reference="x")
    assert found["y"].p_value < 0.01 and found["x"].p_value is None and found["x"].difference is None


@pytest.mark.parametrize("share", [True, False])
def test_one_changed_row_of_200_is_never_significant(share):
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x = (rng.random(N) < 0.3).astype(float) if share else rng.random(N)
        y = x.copy()
        y[seed] = 1 - x[seed] if share else x[seed] + 0.5
        found = paired_bootstrap({"x": mean_of(x), "y": mean_of(y)}, N, seed=seed, reference="x")["y"]
        assert found.p_value == 1.0
        assert found.difference.low <= 0 <= found.difference.high


def nonlinear(x):
    return lambda w: float(np.sqrt(w @ x**2 / w.sum()))


def test_one_changed_row_is_not_significant_for_other_statistics_either():
    for seed in range(40):
        x = np.random.default_rng(seed).normal(size=N)
        y = x.copy()
        y[seed] += 2
        found = paired_bootstrap({"x": nonlinear(x), "y": nonlinear(y)}, N, resamples=300, seed=seed, reference="x")
        assert found["y"].p_value > 0.05


def deviation(x):
    return lambda w: float(np.sqrt(max(0.0, w @ x**2 / w.sum() - (w @ x / w.sum()) ** 2)))


@pytest.mark.parametrize(
    ("statistic", "draw"),
    [
        (deviation, lambda rng: rng.lognormal(sigma=0.7, size=N)),
        (nonlinear, lambda rng: rng.standard_t(5, size=N)),
    ],
    ids=["deviation of lognormal values", "RMS of t values"],
)
def test_p_values_of_statistics_that_few_rows_govern_keep_their_level(statistic, draw):
    trials, starred = 300, 0
    for seed in range(trials):
        rng = np.random.default_rng([seed, 16])
        statistics = {"x": statistic(draw(rng)), "y": statistic(draw(rng))}
        found = paired_bootstrap(statistics, N, resamples=200, seed=seed, reference="x")
        starred += found["y"].p_value <= 0.05
    # 5 %, and two standard errors of the trials
    assert starred / trials <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / trials)


def test_p_values_of_other_statistics_keep_their_level_and_see_differences():
    trials, starred, seen = 150, 0, 0
    for seed in range(trials):
        rng = np.random.default_rng([seed, 4])
        x, y = rng.normal(size=N), rng.normal(size=N)
        statistics = {"x": nonlinear(x), "y": nonlinear(y), "z": nonlinear(1.5 * y)}
        found = paired_bootstrap(statistics, N, resamples=300, seed=seed, reference="x")
        starred, seen = starred + (found["y"].p_value <= 0.05), seen + (found["z"].p_value <= 0.05)
    assert starred / trials <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / trials)
    assert seen / trials > 0.9


@pytest.mark.parametrize("count", [0, 60])
def test_a_share_of_none_or_all_has_an_exact_interval(count):
    x = np.r_[np.ones(count), np.zeros(60 - count)]
    exact = stats.binomtest(count, 60).proportion_ci(0.95)
    for statistic in (mean_of(x), Mean(x)):
        found = paired_bootstrap({"x": statistic}, 60)["x"].estimate
        assert (found.low, found.high) == (exact.low, exact.high)
        assert 0 <= found.low < found.high <= 1


def test_identical_and_constant_statistics_have_a_p_value():
    x = np.random.default_rng(5).random(30)
    for a, b, p_value in (
        (mean_of(x), mean_of(x), 1.0),
        (nonlinear(x), nonlinear(x), 1.0),
        (lambda w: 0.5, lambda w: 0.5, 1.0),
        (mean_of(np.zeros(30)), mean_of(np.zeros(30)), 1.0),
        (mean_of(x), mean_of(x + 1), 2 / 10_000),
    ):
        assert paired_bootstrap({"a": a, "b": b}, 30, reference="a")["b"].p_value == pytest.approx(p_value)
    for n in (1, 2):
        ones, twos = (mean_of(np.full(n, value)) for value in (1.0, 2.0))
        found = paired_bootstrap({"a": ones, "b": twos}, n, reference="a")["b"]
        assert (
            found.p_value == 1.0 / (n if n > 1 else 1)
            and np.isfinite([found.difference.low, found.difference.high]).all()
        )


def test_bca_is_that_of_scipy():
    x = np.random.default_rng(6).exponential(size=50)
    theirs = stats.bootstrap((x,), np.mean, n_resamples=500, method="BCa", rng=np.random.default_rng(7))
    drawn = theirs.bootstrap_distribution
    correction = Correction.of(x.mean(), drawn, (x.sum() - x) / 49)
    # percentiles of the same resamples, which scipy may round to one of them
    low, high = np.quantile(drawn, correction.quantiles(np.array([0.025, 0.975])))
    assert [low, high] == pytest.approx(list(theirs.confidence_interval), rel=1e-9)
    assert correction.level(float(correction.quantiles(np.array([0.1]))[0])) == pytest.approx(0.1)


@pytest.mark.parametrize("n", [6, 40])
def test_swaps_are_those_of_scipy(n):
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=n), rng.normal(size=n) + 0.3
    theirs = stats.permutation_test(
        (x - y,), lambda d, axis: d.mean(axis=axis), permutation_type="samples", vectorized=True, rng=rng
    )
    # all 64 swaps, or 9,999 random ones on either side: five standard errors
    slack = 1e-12 if n == 6 else 5 * 2 * np.sqrt(2 * theirs.pvalue / 2 / 9999)
    assert swapped_p_value(Mean(x), Mean(y), 0) == pytest.approx(theirs.pvalue, abs=slack)


def test_functions_and_means_agree_and_missing_rows_are_left_out():
    rng = np.random.default_rng(9)
    x, y = rng.random(80), rng.random(80)
    functions = paired_bootstrap({"x": mean_of(x), "y": mean_of(y)}, 80, reference="x")
    means = paired_bootstrap({"x": Mean(x), "y": Mean(y)}, 80, reference="x")
    assert functions["y"].p_value == means["y"].p_value
    assert functions["y"].difference.low == pytest.approx(means["y"].difference.low, abs=1e-12)
    gaps = np.where(np.arange(80) < 3, np.nan, y)
    assert Mean(gaps)(np.ones(80)) == pytest.approx(y[3:].mean())
    found = paired_bootstrap({"x": Mean(x), "y": Mean(gaps)}, 80, reference="x")["y"]
    assert 0 < found.p_value <= 1
    pooled = Mean([1.0, 2.0], [3, 1])
    assert pooled(np.ones(2)) == pytest.approx(1.25)
    with pytest.raises(ParameterError, match="one of each per row"):
        Mean([1.0, 2.0], [1.0])
    with pytest.raises(ParameterError, match="drop the row"):
        Mean([1.0, np.inf])
    with pytest.raises(ParameterError, match="Give a value per row"):
        paired_bootstrap({"x": Mean(x)}, 79)


def test_a_function_of_many_rows_leaves_out_blocks():
    x = np.random.default_rng(10).exponential(size=5000)
    a, b = (paired_bootstrap({"x": s}, 5000, resamples=200)["x"].estimate for s in (mean_of(x), Mean(x)))
    assert (a.low, a.high) == pytest.approx((b.low, b.high), rel=1e-9)


def test_holm_is_right():
    assert holm([]) == [] and holm([0.2]) == [0.2]
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    with pytest.raises(ParameterError, match="between 0 and 1"):
        holm([0.1, float("nan")])


def test_shares_of_unchanged_rows_keep_a_width():
    found = paired_share_interval(0, 0, 60, 0.95)
    assert found.value == 0 and -0.06 < found.low < 0 < found.high < 0.06


def groups(seed, rates, *, n=N, second=0.5):
    """Return rows of classes whose two groups are predicted as well as ``rates`` (K, 2) say."""
    rng = np.random.default_rng([seed, 11])
    y, z = rng.integers(len(rates), size=n), (rng.random(n) < second).astype(int)
    return y, np.where(rng.random(n) < rates[y, z], y, -1), z


@pytest.mark.parametrize(
    ("classes", "first", "other", "second"),
    [(2, 0.9, 0.6, 0.5), (4, 0.7, 0.7, 0.5), (10, 0.9, 0.6, 0.5), (4, 0.9, 0.6, 0.1)],
)
def test_intervals_of_the_rms_gap_cover_the_populations(classes, first, other, second):
    rates, trials = np.tile([first, other], (classes, 1)), 250
    samples = [groups(seed, rates, second=second) for seed in range(trials)]
    found = [
        fairness_intervals(y, {"base": y_hat}, z, resamples=300, seed=i)["base"].tpr_gap_rms.estimate
        for i, (y, y_hat, z) in enumerate(samples)
    ]
    assert all(0 <= f.low <= f.value <= f.high for f in found)
    shown = np.mean([f.value for f in found])
    for truth in (abs(first - other), shown):
        covered = np.mean([f.low <= truth <= f.high for f in found])
        assert covered >= 0.92 - 2 * np.sqrt(0.92 * 0.08 / trials)


def test_changes_of_the_rms_gap_are_starred_no_more_often_than_they_may():
    trials, starred = 90, dict.fromkeys(("equal", "few changes", "less accurate"), 0)
    for seed in range(trials):
        rng = np.random.default_rng([seed, 12])
        y, z, u = rng.integers(4, size=N), rng.integers(2, size=N), rng.random((3, N))
        rate = np.where(z, 0.9, 0.6)
        right = {
            "base": u[0] < rate,
            "equal": u[1] < rate,
            "few changes": np.where(u[2] < 0.1, u[1], u[0]) < rate,
            "less accurate": u[1] < rate - 0.3,  # the same gap, but more noise
        }
        found = fairness_intervals(y, {name: np.where(hit, y, -1) for name, hit in right.items()}, z, resamples=200)
        for name in starred:
            starred[name] += found[name].tpr_gap_rms.p_value <= 0.05
    assert max(starred.values()) / trials <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / trials)
    fair = np.tile([0.7, 0.7], (2, 1))
    y, _, z = groups(0, fair, n=1000)
    unfair = np.where(np.random.default_rng(1).random(1000) < np.where(z, 0.9, 0.5), y, -1)
    even = np.where(np.random.default_rng(2).random(1000) < 0.7, y, -1)
    assert fairness_intervals(y, {"base": unfair, "even": even}, z)["even"].tpr_gap_rms.p_value < 0.01


def test_a_function_that_noise_inflates_has_an_interval_around_its_value():
    y, y_hat, z = groups(3, np.tile([0.7, 0.7], (20, 1)), n=400)
    found = paired_bootstrap({"gap": lambda w: tpr_gap_rms(y, y_hat, z, sample_weight=w)}, 400, resamples=300)[
        "gap"
    ].estimate
    assert 0 <= found.low < found.value < found.high
    # the truth is 0, and every resample lies above it
    assert found.low < 0.05


def test_accuracy_is_exact_and_its_change_is_mcnemars():
    rng = np.random.default_rng(13)
    y, z = rng.integers(2, size=300), rng.integers(2, size=300)
    base = np.where(rng.random(300) < 0.8, y, 1 - y)
    other = np.where(rng.random(300) < 0.1, 1 - base, base)
    found = fairness_intervals(y, {"base": base, "other": other}, z, resamples=20)["other"].accuracy
    hits = int((other == y).sum())
    exact = stats.binomtest(hits, 300).proportion_ci(0.95)
    assert (found.estimate.low, found.estimate.high) == (exact.low, exact.high)
    gained, lost = int(((other == y) & (base != y)).sum()), int(((other != y) & (base == y)).sum())
    assert found.p_value == stats.binomtest(gained, gained + lost).pvalue
    assert metrics.accuracy(y, other) == found.estimate.value


@pytest.mark.parametrize("tests", [1, 30, 300])
def test_every_test_of_a_family_can_be_significant(tests):
    resamples = enough_resamples(tests, 1000)
    rng = np.random.default_rng(17)
    x, y = rng.normal(size=N), rng.normal(size=N)
    p_values = [
        paired_bootstrap({"x": s(x), "y": s(3 + 3 * y)}, N, resamples=resamples, reference="x")["y"].p_value
        for s in (Mean, nonlinear)
    ]
    labels, steered, z = groups(0, np.full((2, 2), 0.9), n=2000)
    base = np.where((z == 1) & (rng.random(2000) < 0.8), -1, steered)
    found = fairness_intervals(labels, {"base": base, "steered": steered}, z, resamples=resamples)["steered"]
    p_values += [one.p_value for one in (found.tpr_gap_rms, found.tpr_gap_rms_predicted, found.accuracy)]
    for p_value in p_values:
        assert max(holm([p_value] * tests)) <= 0.05
    if tests == 30:  # a fixed number of resamples would see nothing, whatever the effect
        found = fairness_intervals(labels, {"base": base, "steered": steered}, z, resamples=1000)["steered"]
        assert min(holm([found.tpr_gap_rms.p_value] * tests)) > 0.05


@pytest.mark.parametrize(("gained", "lost", "n"), [(0, 0, 60), (1, 0, 20), (7, 2, 200), (2, 30, 80), (80, 0, 80)])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_the_interval_of_paired_shares_is_that_of_bonett_and_price(gained, lost, n, level):
    """Wald's interval of the rows and of two more, one that gained and one that lost, by their standard deviation."""
    rows = np.repeat([1.0, -1.0, 0.0], [gained + 1, lost + 1, n - gained - lost])
    half = stats.norm.ppf((1 + level) / 2) * rows.std() / np.sqrt(len(rows))
    found = paired_share_interval(gained, lost, n, level)
    value = (gained - lost) / n
    assert found.value == pytest.approx(value)
    assert found.low == pytest.approx(min(value, max(-1.0, rows.mean() - half)), rel=1e-12, abs=1e-15)
    assert found.high == pytest.approx(max(value, min(1.0, rows.mean() + half)), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
def test_intervals_of_paired_shares_are_as_wide_as_their_standard_error(share):
    """Their width shrinks with the root of the rows, so that they neither miss nor waste."""
    widths = []
    for n in (400, 1600, 6400):
        gained, lost = round(share * n), round(share * n / 2)
        found = paired_share_interval(gained, lost, n, 0.95)
        widths.append(found.high - found.low)
        error = np.sqrt((gained + lost) / n - ((gained - lost) / n) ** 2) / np.sqrt(n)
        # one row more in either direction
        assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.1)
    assert widths[0] / widths[1] == pytest.approx(2, rel=0.1) and widths[1] / widths[2] == pytest.approx(2, rel=0.1)
