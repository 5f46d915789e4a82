import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repsurgery import metrics
from repsurgery.errors import DataError, LabelError, ParameterError
from repsurgery.metrics import neighbours


def brute_force(X, queries, k):
    """Neighbours by a full float64 sort, similarity down, then index up."""
    U = np.asarray(X, dtype=np.float64)
    U = U / np.linalg.norm(U, axis=1, keepdims=True)
    found = []
    for i in queries:
        similarity = U @ U[i]
        order = np.lexsort((np.arange(len(U)), -similarity))
        found.append(order[order != i][:k])
    return np.array(found)


def small_blocks(monkeypatch, block=16, queries=7, candidates=2**22):
    monkeypatch.setattr(neighbours, "BLOCK", block)
    monkeypatch.setattr(neighbours, "QUERIES", queries)
    monkeypatch.setattr(neighbours, "CANDIDATES", candidates)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("offset", [0.0, 1.0, 30.0])
@pytest.mark.parametrize(("block", "queries", "candidates"), [(2048, 1024, 2**22), (16, 7, 2**22), (16, 64, 0)])
def test_neighbours_equal_a_float64_brute_force(monkeypatch, dtype, offset, block, queries, candidates):
    small_blocks(monkeypatch, block, queries, candidates)
    X = (np.random.default_rng(0).normal(size=(400, 24)) + offset).astype(dtype)
    for k in (1, 5, 30, 399):
        assert np.array_equal(metrics.nearest_neighbours(X, np.arange(60), k), brute_force(X, range(60), k))


def test_float32_products_alone_would_not_do():
    # similarities closer to each other than float32 can tell: the offset makes all rows nearly parallel
    X = (np.random.default_rng(1).normal(size=(400, 24)) + 1000.0).astype(np.float32)
    U = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    S = U[:60] @ U.T
    S[np.arange(60), np.arange(60)] = -np.inf
    truth = brute_force(X, range(60), 5)
    assert not np.array_equal(np.argsort(-S, axis=1, kind="stable")[:, :5], truth)
    assert np.array_equal(metrics.nearest_neighbours(X, np.arange(60), 5), truth)


def test_ties_take_the_lowest_index_also_across_blocks(monkeypatch):
    small_blocks(monkeypatch)
    rng = np.random.default_rng(2)
    for d in (3, 24, 769):
        X = np.tile(rng.normal(size=(3, d)).astype(np.float32), (40, 1))
        found = metrics.nearest_neighbours(X, np.arange(len(X)), 39)
        for i, row in enumerate(found):
            copies = np.arange(i % 3, len(X), 3)
            assert np.array_equal(row, copies[copies != i])


def test_a_query_is_excluded_by_index_and_its_copies_are_not():
    X = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    assert metrics.nearest_neighbours(X, [0, 1, 3], 3).tolist() == [[1, 2, 3], [0, 2, 3], [2, 0, 1]]


def test_length_does_not_matter_and_tiny_rows_are_no_zero_rows():
    X = np.random.default_rng(3).normal(size=(50, 4))
    # powers of two scale without rounding
    scales = 2.0 ** np.random.default_rng(4).integers(-60, 60, size=(50, 1))
    expected = metrics.nearest_neighbours(X, np.arange(50), 10)
    assert np.array_equal(metrics.nearest_neighbours(X * scales, np.arange(50), 10), expected)
    assert np.array_equal(metrics.nearest_neighbours((X * scales), np.arange(50), 10), brute_force(X, range(50), 10))


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_integer_rows_with_many_ties_equal_brute_force(seed, d):
    rng = np.random.default_rng(seed)
    # axis-parallel rows: similarities are exactly −1, 0 or 1
    X = np.eye(d)[rng.integers(d, size=40)] * rng.choice([-2, 1, 4], size=(40, 1))
    assert np.array_equal(metrics.nearest_neighbours(X, np.arange(40), 12), brute_force(X, range(40), 12))


def test_the_slack_bounds_the_error_of_float32_products():
    rng = np.random.default_rng(5)
    for d in (1, 24, 768, 4096):
        # equal signs add up rounding, the worst case for a sum
        X = np.abs(rng.normal(size=(200, d))).astype(np.float32)
        U = neighbours.unit_rows(X)
        exact = X.astype(np.float64) / np.linalg.norm(X.astype(np.float64), axis=1, keepdims=True)
        assert np.abs(U @ U.T - exact @ exact.T).max() <= neighbours._slack(d) / 2


def test_shares_count_the_querys_own_concept_at_each_k():
    rng = np.random.default_rng(6)
    X, z = rng.normal(size=(120, 5)), rng.choice(["f", "m", "x"], size=120)
    shares = metrics.neighbour_shares(X, z, k=[3, 1, 20], queries=500)
    order = brute_force(X, range(120), 20)
    for k in (1, 3, 20):
        assert np.allclose(shares[k], (z[order[:, :k]] == z[:, None]).mean(axis=1), atol=0)
    assert metrics.neighbour_bias(X, z, k=[3, 1, 20], queries=500) == {k: shares[k].mean() for k in shares}


def test_queries_are_distinct_and_the_same_for_every_representation():
    rng = np.random.default_rng(7)
    X, labels = rng.normal(size=(200, 5)), np.arange(200) % 2
    assert len(metrics.neighbour_shares(X, labels, k=[1], queries=150)[1]) == 150
    drawn = neighbours._draw(200, 150, 3)
    assert len(set(drawn)) == 150
    assert np.array_equal(drawn, neighbours._draw(200, 150, 3))
    assert not np.array_equal(drawn, neighbours._draw(200, 150, 4))
    # a representation that sorts rows by concept alone: each query's share is then 1, whichever rows are asked
    clean = np.eye(2)[labels]
    assert metrics.neighbour_bias(clean, labels, k=[1, 99], queries=150) == {1: 1.0, 99: 1.0}


def test_without_a_concept_in_the_rows_the_bias_is_the_chance_level():
    rng = np.random.default_rng(8)
    z = rng.random(4000) < 0.8
    X = rng.normal(size=(4000, 8))
    chance = metrics.chance_level(z)
    # one query's share at k = 64 has a deviation below 1/2 · 1/√64; 1,000 queries, five deviations
    assert abs(metrics.neighbour_bias(X, z, k=[64])[64] - chance) < 0.05
    assert chance == pytest.approx(z.mean() ** 2 + (1 - z.mean()) ** 2)
    assert max(z.mean(), 1 - z.mean()) - chance > 0.1
    assert metrics.neighbour_bias(X + 3 * z[:, None], z, k=[64])[64] > chance + 0.1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda X: metrics.nearest_neighbours(X, [0], 6), ParameterError, "from 1 to 5"),
        (lambda X: metrics.nearest_neighbours(X, [0], 0), ParameterError, "from 1 to 5"),
        (lambda X: metrics.nearest_neighbours(X, [6], 1), ParameterError, "rows 0 to 5"),
        (lambda X: metrics.nearest_neighbours(X, [-1], 1), ParameterError, "rows 0 to 5"),
        (lambda X: metrics.nearest_neighbours(X, [], 1), ParameterError, "one or more row numbers"),
        (lambda X: metrics.nearest_neighbours(X, [0.5], 1), ParameterError, "one or more row numbers"),
        (lambda X: metrics.nearest_neighbours(0 * X, [0], 1), DataError, "row 0 has length 0 .6 such rows"),
        (lambda X: metrics.nearest_neighbours(np.where(X[3] == X, 0, X), [0], 1), DataError, "row 3 has length 0"),
        (lambda X: metrics.nearest_neighbours(np.where(X[3] == X, np.nan, X), [0], 1), DataError, "row 3, column 0"),
        (lambda X: metrics.neighbour_bias(X, [0, 1], k=[1]), LabelError, "6 rows"),
        (lambda X: metrics.neighbour_bias(X, [0, 1] * 3, k=[]), ParameterError, "a list of whole numbers"),
        (lambda X: metrics.neighbour_bias(X, [0, 1] * 3), ParameterError, "k=8; with 6 rows"),
        (lambda X: metrics.neighbour_bias(X, [0, 1] * 3, k=[1], queries=0), ParameterError, "at least 1"),
        (lambda X: metrics.chance_level([]), LabelError, "no labels"),
    ],
)
def test_unusable_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(np.random.default_rng(9).normal(size=(6, 3)))


def test_the_input_is_not_changed():
    X = np.random.default_rng(10).normal(size=(30, 3)).astype(np.float32)
    before = X.copy()
    metrics.nearest_neighbours(X, [1, 2], 4)
    assert np.array_equal(X, before)


def test_one_k_may_be_given_alone():
    X, z = np.random.default_rng(0).normal(size=(30, 3)), [0, 1] * 15
    assert metrics.neighbour_bias(X, z, k=4) == metrics.neighbour_bias(X, z, k=[4])
