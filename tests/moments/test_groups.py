"""Groups of rows that are not independent: n_eff, merging, removal, files, and what a split group becomes."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import repsurgery as rs
from repsurgery import ClassMoments, Moments
from repsurgery.errors import DataError, FileFormatError, LabelError, SurgeryError
from repsurgery.files import digest_of
from repsurgery.moments import groups as groups_module
from repsurgery.moments.by_class import from_contents, to_contents
from repsurgery.moments.groups import Groups
from repsurgery.moments.stream import stream_moments
from tests.strategies import make_concept


def clustered(sizes, *, d=5, correlation=0.5, offset=0.0, seed=0):
    """Return rows with the given intraclass correlation, and the number of each row's group, shuffled."""
    rng = np.random.default_rng(seed)
    g = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    shared = rng.normal(size=(len(sizes), d))[g]
    own = rng.normal(size=(len(g), d))
    return np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own + offset, g


def by_definition(X, g):
    """n_eff by the formulas of a one-way analysis of variance, in long double and with loops."""
    X = X.astype(np.longdouble)
    n, mean = len(X), X.mean(axis=0)
    parts = [X[g == one] for one in np.unique(g)]
    G, squares = len(parts), sum(len(p) ** 2 for p in parts)
    between = sum(len(p) * np.square(p.mean(axis=0) - mean).sum() for p in parts)
    if G in (1, n):
        return {"between": float(between), "effective": 1.0 if G == 1 else float(n)}
    msb = between / (G - 1)
    msw = (np.square(X - mean).sum() - between) / (n - G)
    m0 = (n - squares / n) / (G - 1)
    scale = msb + (m0 - 1) * msw
    correlation = min(max((msb - msw) / scale, 0), 1) if scale > 0 else 0
    return {"between": float(between), "effective": float(n / (1 + (squares / n - 1) * correlation))}


def assert_groups(found, wanted, rtol=1e-10):
    assert (found.groups is None) == (wanted.groups is None)
    assert_allclose(found.effective_count, wanted.effective_count, rtol=rtol)
    if wanted.groups is not None:
        assert (found.groups.count, found.groups.squares) == (wanted.groups.count, wanted.groups.squares)
        assert_allclose(found.groups.between, wanted.groups.between, rtol=rtol)


def digest(moments):
    contents = to_contents(moments)
    return digest_of(contents.arrays, contents.header)


sizes_of_groups = st.lists(st.integers(1, 9), min_size=1, max_size=12)


@given(sizes_of_groups, st.integers(1, 8), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 99))
def test_unbalanced_groups_have_the_effective_rows_of_the_definition(sizes, d, correlation, seed):
    X, g = clustered(sizes, d=d, correlation=correlation, seed=seed)
    wanted, found = by_definition(X, g), Moments.of(X, groups=g)
    assert_allclose(found.effective_count, wanted["effective"], rtol=1e-9)
    assert_allclose(found.all_groups().between, wanted["between"], rtol=1e-9, atol=1e-12)
    assert found.count == len(X)


def test_blocks_of_rows_do_not_cut_groups(monkeypatch):
    X, g = clustered([1, 40, 3, 7, 1, 25, 8], d=3)
    wanted = Moments.of(X, groups=g).groups
    for rows in (1, 2, 7, 40):
        blocks = lambda n, d, size=rows: (slice(i, min(i + size, n)) for i in range(0, n, size))  # noqa: E731
        monkeypatch.setattr(groups_module, "row_blocks", blocks)
        found = Moments.of(X, groups=g).groups
        assert (found.count, found.squares) == (wanted.count, wanted.squares)
        assert_allclose(found.between, wanted.between, rtol=1e-13)


@given(st.integers(1, 40), st.integers(1, 12), st.booleans(), st.integers(0, 99))
def test_groups_of_one_row_change_no_bit(n, d, offset, seed):
    X = np.random.default_rng(seed).normal(size=(n, d)) + 1e6 * offset
    alone, without = Moments.of(X, groups=[f"text {i}" for i in range(n)]), Moments.of(X)
    assert alone.groups is None
    assert alone.effective_count == without.effective_count == n
    assert alone.scatter.tobytes() == without.scatter.tobytes()
    z = np.arange(n) % 2
    by_class = ClassMoments.of(X, z, groups=np.arange(n))
    assert digest(by_class) == digest(ClassMoments.of(X, z))


def test_groups_do_not_touch_means_and_scatters():
    X, g = clustered([20] * 30, d=6)
    z = (np.arange(len(X)) % 3 == 0).astype(int)
    with_groups, without = ClassMoments.of(X, z, groups=g), ClassMoments.of(X, z)
    for label in without:
        assert with_groups[label].scatter.tobytes() == without[label].scatter.tobytes()
        assert with_groups[label].count == without[label].count
        assert with_groups[label].effective_count < 0.6 * without[label].effective_count


def test_effective_rows_fall_with_the_correlation_from_the_rows_to_the_groups():
    found = []
    for rho in (0.0, 0.1, 0.3, 0.6, 1.0):
        X, g = clustered([20] * 200, d=8, correlation=rho)
        found.append(Moments.of(X, groups=g).effective_count)
        assert_allclose(found[-1], 4000 / (1 + 19 * rho), rtol=0.1)
    assert found == sorted(found, reverse=True)
    assert_allclose(found[-1], 200, rtol=1e-12)


def test_one_group_is_worth_one_row_and_equal_rows_are_uncorrelated():
    X = np.random.default_rng(0).normal(size=(50, 4))
    assert Moments.of(X, groups=["a"] * 50).effective_count == 1.0
    assert Moments.of(X[:1], groups=["a"]).effective_count == 1.0
    assert Moments.of(np.ones((12, 4)), groups=np.arange(12) // 3).effective_count == 12.0
    assert Moments.empty(3).effective_count == 0.0


@pytest.mark.parametrize("d", [3, 60])  # a scatter, and a factor
def test_merged_and_streamed_groups_are_those_at_once(d):
    X, g = clustered([1, 7, 3, 12, 2, 9, 6, 6], d=d)
    z = np.array(["a", "b"])[(np.arange(len(X)) // 3) % 2]
    whole = ClassMoments.of(X, z, groups=g)
    calls = [np.isin(g, part) for part in ([0, 3], [1], [2, 4, 5], [6, 7])]
    parts = [ClassMoments.of(X[rows], z[rows], groups=g[rows]) for rows in calls]
    streamed = stream_moments((X[rows], z[rows], g[rows]) for rows in calls)
    updated = ClassMoments()
    for rows in calls:
        updated = updated.update(X[rows], z[rows], groups=g[rows])
    for label in whole:
        for found in (parts[0] + parts[1] + parts[2] + parts[3], streamed, updated):
            assert_groups(found[label], whole[label])
    assert whole["a"].effective_count < whole["a"].count


def test_rows_without_groups_merge_as_groups_of_one_row():
    X, g = clustered([6, 4, 9], d=4)
    more = np.random.default_rng(1).normal(size=(15, 4)) + 2
    wanted = Moments.of(np.vstack([X, more]), groups=[*g, *range(100, 115)])
    assert_groups(Moments.of(X, groups=g) + Moments.of(more), wanted)
    assert_groups(Moments.of(more).update(X, groups=g), wanted)
    assert_groups(wanted - Moments.of(more), Moments.of(X, groups=g), rtol=1e-9)
    only_single = wanted - Moments.of(X, groups=g)
    assert only_single.groups is None
    assert only_single.effective_count == 15


@given(sizes_of_groups, sizes_of_groups, st.integers(1, 30), st.integers(0, 99))
def test_removing_groups_undoes_adding_them(stay, go, d, seed):
    X, g = clustered(stay, d=d, seed=seed)
    Y, h = clustered(go, d=d, seed=seed + 1, offset=3.0)
    kept, gone = Moments.of(X, groups=g), Moments.of(Y, groups=h)
    left = (kept + gone) - gone
    found, wanted = left.all_groups(), kept.all_groups()
    assert (found.count, found.squares) == (wanted.count, wanted.squares)
    scale = (kept + gone).trace * (kept + gone).weight
    assert abs(found.between - wanted.between) <= 1e-13 * scale


def test_removing_part_of_a_group_is_refused():
    X, g = clustered([10, 10], d=3)
    whole = Moments.of(X, groups=g)
    with pytest.raises(SurgeryError, match="whole groups"):
        whole - Moments.of(X[g == 0][:4], groups=["part"] * 4)
    with pytest.raises(SurgeryError, match="whole groups"):
        Moments.of(X) - Moments.of(X[g == 0], groups=g[g == 0])


def test_a_group_split_over_two_calls_counts_as_two_groups():
    """What the documentation says happens, because moments do not hold the labels of groups."""
    X, g = clustered([8, 8, 8], d=4)
    half = np.arange(len(X)) < 12
    split = Moments.of(X[half], groups=g[half]).update(X[~half], groups=g[~half])
    renamed = Moments.of(X, groups=[f"{one} {first}" for one, first in zip(g, half, strict=True)])
    assert_groups(split, renamed)
    assert split.groups.count == 6 > Moments.of(X, groups=g).groups.count == 3
    assert split.effective_count > Moments.of(X, groups=g).effective_count


def test_a_group_may_span_classes_and_counts_within_each():
    X, g = clustered([10, 10, 10], d=4)
    z = np.random.default_rng(0).integers(0, 2, len(X))
    both = ClassMoments.of(X, z, groups=g)
    for label in (0, 1):
        assert_groups(both[label], Moments.of(X[z == label], groups=g[z == label]))
        assert both[label].groups.count == 3
    assert both.total.groups.count == 6


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_offset_of_a_million_costs_groups_no_digits(dtype):
    X, g = clustered([5, 30, 12, 8, 1, 1, 20], d=6, offset=1e6)
    X = X.astype(dtype)
    wanted = by_definition(X, g)
    cuts = [np.isin(g, part) for part in ([0, 4], [1, 2], [3, 5, 6])]
    parts = [Moments.of(X[rows], groups=g[rows]) for rows in cuts]
    streamed = stream_moments((X[rows], np.zeros(rows.sum(), int), g[rows]) for rows in cuts)[0]
    for found in (Moments.of(X, groups=g), parts[0] + parts[1] + parts[2], streamed):
        assert_allclose(found.groups.between, wanted["between"], rtol=1e-13)
        assert_allclose(found.effective_count, wanted["effective"], rtol=1e-11)
    sizes = np.bincount(g)
    means = np.array([X[g == one].astype(np.float64).mean(axis=0) for one in range(7)])
    naive = sizes @ np.square(means).sum(axis=1) - len(X) * np.square(X.astype(np.float64).mean(axis=0)).sum()
    assert abs(naive - wanted["between"]) > 1e-8 * wanted["between"]


def test_a_weight_counts_a_row_that_often_within_its_group():
    X, g = clustered([4, 7, 2, 5], d=3)
    w = np.random.default_rng(0).integers(0, 4, len(X))
    repeated = Moments.of(np.repeat(X, w, axis=0), groups=np.repeat(g, w))
    assert_groups(Moments.of(X, sample_weight=w, groups=g), repeated)
    without = Moments.of(X, sample_weight=w)
    assert without.effective_count == w.sum()
    # fractions of rows never make more effective rows than there is weight
    assert Moments.of(X, sample_weight=w / 100, groups=g).effective_count <= w.sum() / 100


@pytest.mark.parametrize("d", [3, 60])
def test_groups_survive_files_bytes_pickles_and_copies(tmp_path, d):
    X, g = clustered([5, 8, 2, 9], d=d)
    z = np.arange(len(X)) % 2
    moments = ClassMoments.of(X, z, groups=g)
    moments.save(tmp_path / "m")
    moments[0].save(tmp_path / "single")
    again = [ClassMoments.load(tmp_path / "m"), ClassMoments.from_bytes(moments.to_bytes())]
    again += [pickle.loads(pickle.dumps(moments)), copy.deepcopy(moments)]
    for other in again:
        assert digest(other) == digest(moments)
        assert [other[label].groups for label in other] == [moments[label].groups for label in moments]
    assert Moments.load(tmp_path / "single").groups == moments[0].groups
    assert again[0][1].effective_count == moments[1].effective_count < moments[1].count


def test_a_file_without_groups_has_the_old_layout():
    X, g = clustered([5, 8, 2, 9], d=3)
    z = np.arange(len(X)) % 2
    old = to_contents(ClassMoments.of(X, z))
    assert all(
        set(facts) == {"label", "form", "count", "weight", "dtype", "precision", "sketch", "ledger"}
        for facts in old.header["classes"]
    )
    assert from_contents(old)[0].effective_count == 12
    new = to_contents(ClassMoments.of(X, z, groups=g))
    for damage in (
        {"count": 0},
        {"squares": 1.0},
        {"squares": 1e9},
        {"between": -1.0},
        {"between": "many"},
        {"more": 1},
    ):
        classes = [{**facts, "groups": {**facts["groups"], **damage}} for facts in new.header["classes"]]
        with pytest.raises(FileFormatError):
            from_contents(replace(new, header={"classes": classes}))


def test_labels_of_groups_may_be_anything_hashable():
    X, g = clustered([3, 5, 2], d=3)
    wanted = Moments.of(X, groups=g)
    names = [("doc", int(i)) for i in g]
    for labels in (names, [str(i) for i in g], pd.Series(g, index=g + 7), g.astype(float), np.array(list("abc"))[g]):
        assert_groups(Moments.of(X, groups=labels), wanted)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1], r"shape \(2,\) for 10 rows.*one group label per row"),
        (np.zeros((10, 2)), "one group label per row"),
        ("abcdefghij", "the string"),
        ([0] * 9 + [None], "no group for row 9"),
        (np.array([0.0] * 9 + [np.nan]), "no group for row 9"),
        ([[0]] * 10, "hashable"),
        (7, "one group label per row"),
        (np.ma.masked_equal(np.arange(10), 3), "masked"),
    ],
)
def test_bad_groups_are_refused(labels, message):
    X = np.random.default_rng(0).normal(size=(10, 3))
    z = np.arange(10) % 2
    for call in (
        lambda: Moments.of(X, groups=labels),
        lambda: ClassMoments.of(X, z, groups=labels),
        lambda: rs.MeanMatching().fit(X, z, groups=labels),
        lambda: stream_moments([(X, z, labels)]),
    ):
        with pytest.raises(LabelError, match=message):
            call()


def test_a_stream_gives_groups_with_every_batch_or_with_none():
    X, g = clustered([5, 5], d=3)
    z = np.zeros(10, int)
    with pytest.raises(DataError, match="with every batch"):
        stream_moments([(X, z, g), (X, z)])
    assert stream_moments([(X, z, None)])[0].groups is None


def test_impossible_groups_are_refused():
    m = Moments.of(np.random.default_rng(0).normal(size=(10, 3)))
    with pytest.raises(DataError, match="cannot describe groups of 10 rows"):
        replace(m, groups=Groups(2, 10.0, 1.0))
    assert replace(m, groups=Groups(2, 50.0, 1.0)).groups.count == 2


def test_estimators_count_groups_and_do_not_change_their_maps():
    X, z = make_concept(0, d=4, rows=(60, 90))
    g = np.arange(len(X)) // 3
    est, plain = rs.MiMiC().fit(X, z, groups=g), rs.MiMiC().fit(X, z)
    assert est.steering_.digest() == plain.steering_.digest()
    assert est.moments_[0].groups.count == len(set(g[z == 0]))
    assert plain.moments_[0].groups is None
    assert (rs.MiMiC().fit_transform(X, z, groups=g) == plain.transform(X)).all()
    first = g < 25
    partial = (
        rs.MiMiC().partial_fit(X[first], z[first], groups=g[first]).partial_fit(X[~first], z[~first], groups=g[~first])
    )
    for label in (0, 1):
        assert_groups(partial.moments_[label], est.moments_[label])
