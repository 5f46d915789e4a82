"""Measures of structured rows and of labels of very different frequency equal their plain definitions."""

import itertools
import warnings
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import beta

from repsurgery import metrics
from repsurgery.errors import DataError, LabelError
from repsurgery.metrics import Mean, fairness_intervals, holm, paired_bootstrap
from tests.oracles import BITS, exact
from tests.strategies import EPS, share, structured, structured_rows

PLAIN = ("sparse", "counts", "tied", "one row", "normal", "far", "same", "negative", "double", "sum", "constant")
ROWS = {"max_rows": 24, "max_d": 6, "weighted": False, "grouped": False}


@st.composite
def predictions(draw, *, classes=4, rows=30):
    """Draw labels, predictions, two groups and weights, with classes and groups of very different size."""
    n = draw(st.integers(2, rows))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    common = np.array([0.7, 0.2, 0.07, 0.03])[:classes]
    y, y_hat = rng.choice(classes, size=(2, n), p=common / common.sum())
    y_hat = np.where(rng.random(n) < 0.6, y, y_hat)
    group = (rng.random(n) < draw(st.sampled_from([0.5, 0.1, 0.95]))).astype(int)
    group[:2] = [0, 1]
    w = rng.choice([0.0, 0.25, 1.0, 3.0], size=n) if draw(st.booleans()) else None
    if w is not None:
        w[:2] = 1.0
    return y, y_hat, group, w


def rates(y, y_hat, group, w):
    """Return P(ŷ = c | y = c, group) by class and group in fractions; None where no row has weight."""
    w = [Fraction(1)] * len(y) if w is None else [Fraction(v) for v in w]
    found = {}
    for c, g in itertools.product(sorted(set(y.tolist())), (0, 1)):
        inside = [i for i in range(len(y)) if y[i] == c and group[i] == g]
        total = sum(w[i] for i in inside)
        found[c, g] = sum(w[i] for i in inside if y_hat[i] == c) / total if total else None
    return found


@given(predictions())
def test_rates_and_gaps_are_those_of_fractions(drawn):
    y, y_hat, group, w = drawn
    found = rates(y, y_hat, group, w)
    classes = sorted(set(y.tolist()))
    gaps = {c: None if None in (found[c, 0], found[c, 1]) else found[c, 1] - found[c, 0] for c in classes}
    measured = metrics.tpr_gap(y, y_hat, group, sample_weight=w)
    assert list(measured) == classes
    for c in classes:
        assert (measured[c] is None) == (gaps[c] is None)
        if gaps[c] is not None:
            assert measured[c] == pytest.approx(float(gaps[c]), abs=8 * len(y) * EPS)
    known = [gap for gap in gaps.values() if gap is not None]
    if not known:
        with pytest.raises(LabelError, match="rows of both groups"):
            metrics.tpr_gap_rms(y, y_hat, group, sample_weight=w)
        return
    rms = float(sum(gap**2 for gap in known) / len(known)) ** 0.5
    assert metrics.tpr_gap_rms(y, y_hat, group, sample_weight=w) == pytest.approx(rms, rel=1e-12, abs=1e-12)
    weights = np.ones(len(y)) if w is None else w
    right = sum(Fraction(v) for v, a, b in zip(weights, y, y_hat, strict=True) if a == b)
    assert metrics.accuracy(y, y_hat, sample_weight=w) == pytest.approx(
        float(right / sum(map(Fraction, weights))), abs=8 * len(y) * EPS
    )


@given(predictions(), st.data())
def test_rates_do_not_depend_on_the_order_of_rows_and_count_weights_as_repetitions(drawn, draw):
    y, y_hat, group, _ = drawn
    order = np.array(draw.draw(st.permutations(range(len(y)))))
    times = np.array(draw.draw(st.lists(st.integers(0, 3), min_size=len(y), max_size=len(y))))
    times[:2] = 1
    again = np.repeat(np.arange(len(y)), times)
    for measure in (metrics.tpr_gap_rms, metrics.tpr_gap_rms_predicted):
        results = []
        for rows, w in ((order, times[order].astype(float)), (again, None)):
            try:
                results.append(measure(y[rows], y_hat[rows], group[rows], sample_weight=w))
            except LabelError:
                results.append(None)
        assert (results[0] is None) == (results[1] is None)
        if results[0] is not None:
            assert results[0] == pytest.approx(results[1], abs=1e-12)


@given(structured_rows(classes=2, min_rows=2, max_rows=10, max_d=4, weighted=False, grouped=False), st.booleans())
def test_expected_bias_is_that_of_all_pairs_in_exact_numbers(data, distinct):
    X, z = data.X, data.z
    found = metrics.expected_bias_by_neighbours(X, z, statistic="u" if distinct else "v")
    with mpmath.workprec(BITS):
        rows = [[mpmath.mpf(float(v)) for v in row] for row in X]

        def mean(pairs):
            squares = [mpmath.fsum((a - b) ** 2 for a, b in zip(rows[i], rows[j], strict=True)) for i, j in pairs]
            return mpmath.fsum(squares) / len(squares)

        source, target = np.flatnonzero(z == 0), np.flatnonzero(z == 1)
        within = mean([(i, j) for i in source for j in source if i != j or not distinct])
        across = mean(list(itertools.product(source, target)))
        value, size = float(abs(within - across)), float(within + across)
    # the means are known to the rounding of their own size
    (m0, _), (m1, _) = (exact(data.of(c)[0]) for c in (0, 1))
    off = 8 * EPS * (np.abs(m0) + np.abs(m1))
    allowed = 64 * sum(X.shape) * EPS * size + float(off @ (2 * np.abs(m0 - m1) + off)) + 1e-300
    assert found == pytest.approx(value, abs=allowed)


def cosine(X):
    """Return the cosine similarities (n, n) in the longest float."""
    X = X.astype(np.longdouble)
    U = X / np.sqrt(np.square(X).sum(axis=1))[:, None]
    return U @ U.T


@given(structured_rows(min_rows=3, kinds=PLAIN, **ROWS), st.data())
def test_neighbours_are_those_of_a_plain_comparison(data, draw):
    X = data.X
    n = len(X)
    k = draw.draw(st.integers(1, n - 1))
    if not np.square(X.astype(float)).sum(axis=1).all():
        with pytest.raises(DataError, match="Drop zero rows"):
            metrics.nearest_neighbours(X, np.arange(n), k)
        return
    found = metrics.nearest_neighbours(X, np.arange(n), k)
    S = cosine(X)
    slack = 8 * (X.shape[1] + 4) * EPS  # only rows that are so close may change places
    for i, neighbours in enumerate(found):
        assert i not in neighbours
        assert len(set(neighbours)) == k
        others = np.delete(np.arange(n), i)
        best = np.sort(S[i, others])[::-1][:k]
        assert (np.abs(S[i, neighbours] - best) <= slack).all()
        for a, b in itertools.pairwise(neighbours):  # copies keep their order
            if (X[a] == X[b]).all():
                assert a < b


@given(structured_rows(classes=2, min_rows=2, kinds=PLAIN, **ROWS), st.data())
def test_a_power_of_two_and_copies_of_rows_leave_neighbours_and_cosines_alone(data, draw):
    X, z = data.X.astype(float), data.z
    if not np.square(X).sum(axis=1).all():
        return
    n, power = len(X), draw.draw(st.integers(-30, 30))
    k = draw.draw(st.integers(1, n - 1))
    plain = metrics.nearest_neighbours(X, np.arange(n), k)
    assert_array_equal(metrics.nearest_neighbours(np.ldexp(X, power), np.arange(n), k), plain)
    blocks = metrics.cosine_blocks(X, z)
    assert_array_equal(metrics.cosine_blocks(np.ldexp(X, power), z).similarity, blocks.similarity)


@given(structured_rows(classes=3, min_rows=1, kinds=PLAIN, **ROWS))
def test_cosine_blocks_are_means_of_pairs_of_different_rows(data):
    X, z = data.X.astype(float), data.z
    if not np.square(X).sum(axis=1).all():
        with pytest.raises(DataError, match="Drop zero rows"):
            metrics.cosine_blocks(X, z)
        return
    blocks = metrics.cosine_blocks(X, z)
    S = cosine(X)
    slack = 4 * (X.shape[1] + 8) * float(np.finfo(np.float32).eps)
    assert_allclose(blocks.similarity, S[np.ix_(blocks.rows, blocks.rows)].astype(float), atol=slack)
    pairs = {(a, b): [] for a in range(3) for b in range(3)}
    for i, j in itertools.permutations(range(len(X)), 2):
        pairs[z[i], z[j]].append(float(S[i, j]))
    for (a, b), values in pairs.items():
        assert np.isnan(blocks.means[a, b]) if not values else abs(blocks.means[a, b] - np.mean(values)) <= slack
    within = [v for (a, b), values in pairs.items() if a == b for v in values]
    between = [v for (a, b), values in pairs.items() if a != b for v in values]
    assert np.isnan(blocks.within) if not within else abs(blocks.within - np.mean(within)) <= slack
    assert abs(blocks.between - np.mean(between)) <= slack


@given(predictions(), st.sampled_from([0.8, 0.95]))
def test_intervals_contain_their_values_and_shares_are_exact(drawn, level):
    y, y_hat, group, _ = drawn
    try:
        found = fairness_intervals(y, {"base": y, "other": y_hat}, group, resamples=50, level=level)
    except LabelError as error:
        assert "rows of both groups" in str(error)
        return
    n = len(y)
    for name, predicted in (("base", y), ("other", y_hat)):
        result = found[name]
        hits = int((predicted == y).sum())
        one = result.accuracy.estimate
        assert one.value == pytest.approx(hits / n)
        assert one.low <= one.value <= one.high
        # an exact interval is never wider than that of Clopper and Pearson, and covers as it states
        tail = (1 - level) / 2
        low = 0.0 if hits == 0 else beta.ppf(tail, hits, n - hits + 1)
        high = 1.0 if hits == n else beta.ppf(1 - tail, hits + 1, n - hits)
        assert low - 1e-9 <= one.low and one.high <= high + 1e-9
        rms = metrics.tpr_gap_rms(y, predicted, group)
        gap = result.tpr_gap_rms.estimate
        assert gap.value == pytest.approx(rms, abs=1e-12)
        assert gap.low - 1e-12 <= rms <= gap.high + 1e-12


@share(0.5)
@given(
    structured_rows(min_rows=3, kinds=("counts", "sparse", "tied", "huge", "tiny", "far"), **ROWS), st.integers(-30, 30)
)
def test_a_bootstrapped_mean_is_that_of_the_rows_in_any_unit(data, power):
    columns = {"base": data.X[:, 0].astype(float), "other": data.X[:, -1].astype(float)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = paired_bootstrap({name: Mean(v) for name, v in columns.items()}, len(data.X), resamples=40)
        scaled = paired_bootstrap(
            {name: Mean(np.ldexp(v, power)) for name, v in columns.items()}, len(data.X), resamples=40
        )
    for name, values in columns.items():
        one, other = plain[name].estimate, scaled[name].estimate
        mean = float(np.mean(values.astype(np.longdouble)))
        assert one.value == pytest.approx(mean, abs=8 * len(values) * EPS * np.abs(values).max())
        assert one.low <= one.value <= one.high
        if Mean(values).is_share or Mean(np.ldexp(values, power)).is_share:
            continue  # the interval of a share is exact
        size = max(np.abs(values).max(), 1e-300)
        assert_allclose(
            np.ldexp([other.low, other.value, other.high], -power),
            [one.low, one.value, one.high],
            rtol=0,
            atol=1e-9 * size,
        )


@given(st.lists(st.sampled_from([0.0, 1e-300, 1e-9, 0.01, 0.01, 0.04, 0.5, 1.0]), min_size=1, max_size=8))
def test_holm_is_the_closed_test_of_bonferroni(p):
    # adjusted = the largest Bonferroni p-value over all sets of hypotheses that contain this one
    m = len(p)
    for i, adjusted in enumerate(holm(p)):
        others = [j for j in range(m) if j != i]
        sets = (c for size in range(m) for c in itertools.combinations(others, size))
        closed = max(min(1.0, (len(c) + 1) * min([p[i], *(p[j] for j in c)])) for c in sets)
        assert adjusted == pytest.approx(closed, rel=1e-12)


@share(0.2)
@given(
    structured_rows(
        classes=2, min_rows=6, kinds=("counts", "sparse", "normal", "constant", "zero", "far", "huge", "tiny"), **ROWS
    ),
    st.data(),
)
def test_a_linear_probe_reads_columns_in_any_unit_and_no_constant_one(data, draw):
    X = data.X.astype(float)
    powers = np.array([draw.draw(st.integers(-20, 20)) for _ in range(X.shape[1])])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = metrics.linear_probe_accuracy(X, data.z, X, data.z)
        scaled = metrics.linear_probe_accuracy(np.ldexp(X, powers), data.z, np.ldexp(X, powers), data.z)
        more = np.concatenate([X, np.full((len(X), 1), -0.3)], axis=1)
        assert metrics.linear_probe_accuracy(more, data.z, more, data.z) == plain == scaled


def test_wrong_neighbours_would_be_seen():
    X = structured(0, 12, ("counts", "normal", "sparse"))
    S = cosine(X)
    found = metrics.nearest_neighbours(X, [0], 3)[0]
    worst = np.argsort(S[0, 1:])[:3] + 1
    assert np.abs(S[0, found] - S[0, worst]).max() > 0.1


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_a_probe_reads_rows_of_any_scale(scale):
    X, z = structured(0, 60, ("counts", "normal", "constant")), np.repeat([0, 1], 30)
    X[:, 1] += 3.0 * z
    right = metrics.linear_probe_accuracy(X[::2], z[::2], X[1::2], z[1::2])
    X[:, :2] *= scale
    assert metrics.linear_probe_accuracy(X[::2], z[::2], X[1::2], z[1::2]) == right > 0.8
    assert metrics.mlp_probe_accuracy(X, z, X, z) > 0.8


@pytest.mark.parametrize("weight", [1e-300, 1e300])
def test_weights_whose_squares_leave_float64_are_refused_with_the_remedy(weight):
    w = np.ones(8)
    w *= weight
    with pytest.raises(DataError, match="Multiply all weights by one constant"):
        metrics.accuracy([0, 1] * 4, [0, 1] * 4, sample_weight=w)
    w[0] = 1.0  # beside a weight near 1, one that is very small does no harm
    if weight < 1:
        assert metrics.accuracy([0, 1] * 4, [0, 1] * 4, sample_weight=w) == 1
