"""What every estimator guarantees, measured by two passes on rows as they really are, however they are counted."""

import warnings
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

import repsurgery as rs
from repsurgery.errors import DataError, LabelError, SurgeryWarning
from repsurgery.moments import CrossMoments
from repsurgery.moments.stream import stream_moments
from repsurgery.steering.model_card import certificate_words
from tests.estimators import ALL, EQUAL_MEANS
from tests.oracles import two_pass
from tests.strategies import COLUMNS, DEPENDENT, EPS, Structured, share, structured, structured_rows

LIKE = tuple(kind for kind in COLUMNS if kind not in ("tiny", "huge", "nearly constant"))
"""Kinds of columns that vary by about 1 or not at all, so that one tolerance of ranks fits all of them."""
FEW = {"min_rows": 2, "max_rows": 24, "max_d": 7}
TINY = float(np.finfo(np.float64).tiny)


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        for kind in (SurgeryWarning, ConvergenceWarning):
            warnings.simplefilter("ignore", kind)
        yield


def fitted(estimator, data, **params):
    """Return the fitted estimator, or None where no direction separates the classes, as MidSteer says."""
    try:
        return estimator(**params).fit(data.X, data.z, sample_weight=data.w, groups=data.groups)
    except LabelError as error:
        assert estimator is rs.MidSteer
        assert "no direction separates them" in str(error)
        return None


def sizes(m, X):
    """Return the sizes (d,) of what is summed up in each column of a mapped row."""
    most = np.abs(X.astype(float)).max(axis=0)
    if isinstance(m, rs.LowRank):
        return np.abs(m.left) @ (np.abs(m.right) @ most) + abs(float(m.scale)) * most + np.abs(m.bias) + most
    return np.abs(m.weight) @ most + np.abs(m.bias) + most


def steered(est, data):
    """Return the rows of each class, in float64, steered by its labels, with their weights and their sizes."""
    maps, X = est.maps_, data.X.astype(np.float64)
    found = {}
    for label in sorted(set(data.z)):
        m = maps.get(label, maps.get(None))
        rows = X[data.z == label]
        w = None if data.w is None else data.w[data.z == label]
        found[label] = (rows if m is None else m.apply(rows), w, sizes(m, X) if m else np.abs(X).max(axis=0))
    return found


def summary(rows, w):
    """Return the mean and the covariance of rows by two passes."""
    mean, scatter = two_pass(rows, w)
    return mean, scatter / (len(rows) if w is None else w.sum())


SHRINKAGES = [{}, {"shrinkage": "ridge", "ridge": 1e-3}, {"shrinkage": "relative-ridge"}, {"shrinkage": "oas"}]
POOLED = [{"shrinkage": "pooled"}, {"shrinkage": "pooled", "alpha": 0.5}]


def live(data):
    """Return the columns (d,) that vary beyond the rounding of their rows: the others LEACE counts as dead."""
    mean, scatter = two_pass(data.X, data.w)
    spread = np.sqrt(np.diagonal(scatter) / (len(data.X) if data.w is None else data.w.sum()))
    if data.X.dtype == np.float32:
        eps = float(np.finfo(np.float32).eps)
        return spread > 1.001 * eps * np.maximum(8 * spread.max(), np.abs(mean))
    return spread >= 4 * EPS * np.maximum(spread.max(), np.abs(mean))


def differ_along_a_thin_direction(data):
    """Return whether class means differ along a combination of columns that a covariance hardly tells from constant."""
    mean, scatter = two_pass(data.X, data.w)
    columns = np.flatnonzero(live(data) & (np.diagonal(scatter) > 0))
    scale = np.sqrt(np.diagonal(scatter)[columns])
    values, V = np.linalg.eigh(scatter[np.ix_(columns, columns)] / scale / scale[:, None])
    gaps = np.array([two_pass(*data.of(c))[0][columns] - mean[columns] for c in set(data.z)]) / scale
    eps = float(np.finfo(np.float32).eps) if data.X.dtype == np.float32 else EPS
    rounding = eps * np.abs(mean[columns]) * np.sqrt(len(data.X) if data.w is None else data.w.sum()) / scale
    along = gaps @ V[:, values < max(100 * len(scatter) * EPS, 4 * rounding @ rounding)]
    return bool((np.abs(along) > 1e-12 * np.abs(gaps).max(initial=0.0)).any())


def assert_equal_means(est, data):
    """Check that all classes have the mean of the last, in every column, up to the rounding of the steered rows."""
    *sources, (B, b, size_b) = steered(est, data).values()
    aim = two_pass(B, b)[0]
    for A, a, size_a in sources:
        # each steered number is a sum of d products, and so is the constant of its map
        allowed = 16 * (data.X.shape[1] + 4) * EPS * np.maximum(size_a, size_b) + TINY
        close = np.abs(two_pass(A, a)[0] - aim) <= allowed
        assert close[live(data) if isinstance(est, rs.LEACE) else slice(None)].all()


@pytest.mark.parametrize("estimator", EQUAL_MEANS)
@share(0.6)
@given(data=structured_rows(classes=2, **FEW) | structured_rows(classes=3, **FEW), options=st.sampled_from(SHRINKAGES))
def test_means_coincide_in_every_column(estimator, data, options):
    known = estimator().get_params()
    est = fitted(estimator, data, **{name: value for name, value in options.items() if name in known})
    if est is None or (estimator is rs.LEACE and differ_along_a_thin_direction(data)):
        return  # such a gap cannot be told from rounding
    assert_equal_means(est, data)


@pytest.mark.parametrize("options", POOLED)
@given(data=structured_rows(classes=3, **FEW))
def test_means_coincide_where_covariances_are_pooled(options, data):
    for estimator in (rs.MiMiC, rs.DiagonalTransport):
        assert_equal_means(fitted(estimator, data, **options), data)


def test_no_unsteered_class_has_the_mean_of_another():
    data = Structured(structured(0, 30, ("sparse", "counts", "far")), np.repeat([0, 1], 15), None, None, ())
    est = rs.MeanMatching().fit(data.X, data.z)
    assert_equal_means(est, data)
    with pytest.raises(AssertionError):
        assert_equal_means(rs.MeanMatching(source=0, target=0 + 1).fit(data.X * (1 + 1e-9), data.z), data)


@pytest.mark.parametrize("columns", ["two nearly equal columns", "a column at an offset"])
@pytest.mark.parametrize("estimator", EQUAL_MEANS)
def test_a_column_of_few_digits_does_not_hide_the_gap_in_the_others(estimator, columns):
    rng = np.random.default_rng(0)
    X, z = rng.normal(size=(60, 5)), np.repeat([0, 1, 2], 20)
    X[:, 0] += 0.4 * z
    if columns == "two nearly equal columns":
        X[:, 2] = X[:, 1] + 3.0  # the sum rounds
    else:
        X[:, 2] = 5.0 + 1e-14 * X[:, 2]
    data = Structured(X, z, None, None, ())
    assert_equal_means(estimator().fit(X, z), data)


def assert_carried(est, data, labels, target):
    """Check that classes have the target's covariance up to what the tolerance of ranks leaves out."""
    d, records = data.X.shape[1], est.certificate_.by_source
    parts = steered(est, data)
    aim = summary(*parts[target][:2])[1]
    for label in labels:
        rows, w, _ = parts[label]
        gain = max(np.linalg.norm(est.maps_[label].weight, 2), 1.0)
        before = data.of(label)[0].astype(float)
        size = gain * (np.abs(before).max() * 4 * d * EPS)  # the rounding of each steered number
        wide = np.linalg.norm(summary(before, w)[1])
        lost = d * est.certificate_.rank_tolerance**2 * (gain**2 * wide + np.linalg.norm(aim))
        rounding = 256 * d * EPS * gain * np.sqrt(wide) * max(np.sqrt(np.linalg.norm(aim)), gain * np.sqrt(wide))
        bound = records[label].residual_bound * np.linalg.norm(aim)
        gap = np.linalg.norm(summary(rows, w)[1] - aim)
        assert gap <= bound * (1 + 1e-6) + 8 * (lost + rounding) + size * (size + gain * np.sqrt(wide))


@given(structured_rows(classes=2, kinds=(*LIKE, *DEPENDENT), dtypes=(np.float64, np.int64), **FEW))
def test_mimic_carries_covariances_as_far_as_any_map_can(data):
    est = fitted(rs.MiMiC, data)
    assert_carried(est, data, [0], 1)


@given(structured_rows(classes=2, min_rows=10, max_rows=40, max_d=5, kinds=("normal", "tiny", "huge", "zero", "far")))
def test_mimic_carries_the_covariance_of_narrow_columns_beside_wide_ones(data):
    (S0, S1), d = (summary(*data.of(label))[1] for label in (0, 1)), data.X.shape[1]
    live = (np.diagonal(S0) > 0) & (np.diagonal(S1) > 0)
    if not live.any() or ((np.diagonal(S0) > 0) != (np.diagonal(S1) > 0)).any():
        return
    scales = [np.sqrt(np.diagonal(S)[live]) for S in (S0, S1)]
    condition = max(
        np.linalg.cond(S[np.ix_(live, live)] / u / u[:, None]) for S, u in zip((S0, S1), scales, strict=True)
    )
    est = fitted(rs.MiMiC, data)
    if condition * est.certificate_.rank_tolerance**2 * 1e4 > 1:
        return  # some column depends on others
    (A, a, size), _ = steered(est, data).values()
    u = np.sqrt(np.diagonal(S1))
    rounding = 8 * (d + 4) * EPS * size
    allowed = 256 * d**2 * EPS * condition * np.outer(u, u) + 4 * np.outer(rounding, u + rounding)
    assert (np.abs(summary(A, a)[1] - S1) <= allowed + allowed.T + TINY).all()


@given(structured_rows(classes=3, kinds=(*LIKE, *DEPENDENT), dtypes=(np.float64, np.int64), **FEW))
def test_the_barycentre_is_one_covariance_for_all(data):
    est = fitted(rs.BarycenterErasure, data)
    if all(record.feasible for record in est.certificate_.by_source.values()):
        assert_carried(est, data, [0, 1], 2)
    parts = steered(est, data)
    total = 1.0 if data.w is None else data.w
    before = two_pass(data.X.astype(float), None if data.w is None else data.w)[0]
    after = np.concatenate([rows for rows, _, _ in parts.values()])
    order = np.concatenate([np.flatnonzero(data.z == label) for label in parts])
    mean = two_pass(after, None if data.w is None else np.broadcast_to(total, len(data.X))[order])[0]
    size = max(part[2].max() for part in parts.values())
    assert_allclose(mean, before, rtol=0, atol=32 * (data.X.shape[1] + 4) * EPS * size + TINY)


@given(structured_rows(classes=2, **FEW))
def test_diagonal_transport_carries_every_variance(data):
    est = fitted(rs.DiagonalTransport, data)
    (A, a, size), (B, b, _) = steered(est, data).values()
    found, aim = (np.diagonal(summary(rows, w)[1]) for rows, w in ((A, a), (B, b)))
    m, source = est.map_, np.diagonal(summary(*data.of(0))[1])
    # a column is shifted alone where its spread is within the rounding of its mean, as the dtype of the rows rounds
    eps = np.finfo(data.X.dtype).eps if data.X.dtype == np.float32 else EPS
    mean = np.abs(two_pass(*data.of(0))[0])
    varies = np.sqrt(source) > 8 * eps * mean
    rounding = 4 * EPS * size
    n = len(data.X)
    allowed = 64 * n * EPS * aim + 8 * rounding * np.sqrt(aim) + 8 * rounding**2 + TINY
    assert (np.abs(found - aim) <= allowed)[varies].all()
    still = np.sqrt(source) <= 2 * eps * mean
    assert (m.scale[still] == 1).all()


@given(structured_rows(classes=2, **FEW))
def test_trace_matching_carries_the_trace_by_one_number(data):
    est = fitted(rs.TraceMatching, data)
    (A, a, size), (B, b, _) = steered(est, data).values()
    found, aim = (float(np.trace(summary(rows, w)[1])) for rows, w in ((A, a), (B, b)))
    assert len(np.unique(est.map_.scale)) == 1
    if np.trace(summary(*data.of(0))[1]) > 0:
        rounding = 8 * EPS * np.linalg.norm(size)
        assert abs(found - aim) <= 64 * len(data.X) * EPS * aim + 8 * rounding * (np.sqrt(aim) + rounding) + TINY
    else:
        assert est.map_.scale[0] == 1


@given(structured_rows(classes=3, **FEW))
def test_leace_keeps_the_mean_and_erasing_twice_erases_once(data):
    m = fitted(rs.LEACE, data).map_
    X = data.X.astype(float)
    once = m.apply(X)
    size = sizes(m, X)
    allowed = 32 * (data.X.shape[1] + 4) * EPS * size + TINY
    mean = two_pass(X, data.w)[0]
    assert (np.abs(two_pass(once, data.w)[0] - mean) <= allowed).all()
    # (I − LR)² = I − LR + L(RL − I)R, where the products of R and L round
    inner = 1 + float((np.abs(m.right) @ np.abs(m.left)).sum())
    again = 32 * (data.X.shape[1] + 4) * EPS * (sizes(m, once) + size * inner) + TINY
    assert (np.abs(m.apply(once) - once) <= again).all()
    assert m.rank <= 2


@given(structured_rows(classes=1, min_rows=3, max_rows=30, max_d=7, grouped=False), st.integers(1, 2), st.data())
def test_a_continuous_concept_has_no_covariance_with_erased_rows(data, k, draw):
    seed = draw.draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    kinds = draw.draw(st.lists(st.sampled_from(["counts", "sparse", "normal", "far", "tied"]), min_size=k, max_size=k))
    X, Z = data.X.astype(float), structured(seed, len(data.X), kinds)
    Z[:, 0] += X[:, 0] / max(np.abs(X[:, 0]).max(), 1e-300) + rng.normal(size=len(X))
    try:
        est = rs.LEACE(concept_type="continuous").fit(data.X, Z, sample_weight=data.w)
    except LabelError as error:
        assert "a concept needs at least two values" in str(error)
        assert not two_pass(Z, data.w)[1].diagonal().all()
        return
    Y = est.map_.apply(X)
    w = np.ones(len(X)) if data.w is None else data.w
    d = X.shape[1]
    joint = two_pass(np.concatenate([Y, Z], axis=1), w)[1]
    spread = np.sqrt(np.diagonal(joint)[d:])
    size = sizes(est.map_, X) * np.sqrt(w.sum())
    allowed = (
        64 * (d + len(X)) * EPS * np.outer(size, spread) + 64 * EPS**2 * np.outer(size, np.abs(Z).max(axis=0)) * w.sum()
    )
    assert (np.abs(joint[:d, d:]) <= allowed + TINY)[live(data)].all()
    from_moments = rs.LEACE.from_moments(CrossMoments.of(data.X, Z, sample_weight=data.w), concept_type="continuous")
    assert (from_moments.map_.weight == est.map_.weight).all()


@given(structured_rows(classes=3, **FEW))
def test_midsteer_leaves_the_neutral_mean(data):
    est = fitted(rs.MidSteer, data)
    if est is None:
        return
    mean = two_pass(data.X.astype(float), data.w)[0]
    for m in est.maps_.values():
        found = m.apply(mean[None])[0]
        assert (np.abs(found - mean) <= 32 * (data.X.shape[1] + 4) * EPS * sizes(m, data.X) + TINY).all()


@given(structured_rows(classes=2, kinds=(*LIKE, *DEPENDENT), dtypes=(np.float64, np.int64), **FEW))
def test_the_gap_that_a_ridge_leaves_is_the_stated_one(data):
    for options in ({"shrinkage": "ridge", "ridge": 0.1}, {"shrinkage": "relative-ridge", "ridge": 0.1}):
        est = fitted(rs.MiMiC, data, **options)
        record = est.certificate_.by_source[0]
        (A, a, _), (B, b, _) = steered(est, data).values()
        S, aim = (summary(rows, w)[1] for rows, w in ((A, a), (B, b)))
        gain, norm = max(record.gain, 1.0), np.linalg.norm(aim)
        size = np.abs(data.X.astype(float)).max() * gain * 8 * len(S) * EPS
        wide = np.sqrt(np.linalg.norm(summary(*data.of(0))[1])) * gain
        slack = 1e-6 * wide**2 + size * (size + wide)
        if record.feasible and np.isfinite(record.shrinkage_moved) and norm > 0:
            assert abs(np.linalg.norm(S - aim) - record.shrinkage_moved * norm) <= slack + 1e-6 * norm


@pytest.mark.parametrize("source", [0, 1])
def test_no_gap_is_computed_from_the_rounding_of_what_a_shrinkage_keeps(source):
    # OAS keeps nothing of two covariances of rank one; that one of them keeps 3e-16 is rounding
    X = np.zeros((4, 3))
    X[:, 2] = [999998.2617336, 999998.66335721, 999998.63889329, 999999.64838287]
    est = rs.MiMiC(source=source, target=1 - source, shrinkage="oas").fit(X, [1, 0, 1, 0])
    assert est.certificate_.by_source[source].shrinkage_moved == np.inf


def counted_in_parts(data, cuts, order):
    """Return the class moments of the rows, counted in parts and merged in some order."""
    n = len(data.X)
    parts = []
    for a, b in zip([0, *cuts], [*cuts, n], strict=True):
        w = None if data.w is None else data.w[a:b]
        if b > a and (w is None or w.any()):
            groups = None if data.groups is None else data.groups[a:b]
            parts.append(rs.ClassMoments.of(data.X[a:b], data.z[a:b], sample_weight=w, groups=groups))
    return reduce(rs.ClassMoments.merge, [parts[i % len(parts)] for i in dict.fromkeys(i % len(parts) for i in order)])


@pytest.mark.parametrize("estimator", EQUAL_MEANS)
@share(0.3)
@given(data=structured_rows(classes=2, **FEW), draw=st.data())
def test_the_guarantee_holds_however_the_rows_were_counted(estimator, data, draw):
    whole = fitted(estimator, data)
    if whole is None:
        return
    weighted = {"sample_weight": data.w, "groups": data.groups}
    same = estimator.from_moments(rs.ClassMoments.of(data.X, data.z, **weighted))
    for label, m in whole.maps_.items():
        for name, array in m.arrays().items():
            assert (same.maps_[label].arrays()[name] == array).all()
    assert same.certificate_.measured_on == "moments"
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data.X)), max_size=3)))
    order = draw.draw(st.permutations(range(len(cuts) + 1)))
    merged = estimator.from_moments(counted_in_parts(data, cuts, order))
    assert_equal_means(merged, data)
    ways = [merged]
    if data.w is None:
        ways.append(estimator.from_moments(stream_moments([(data.X[::2], data.z[::2]), (data.X[1::2], data.z[1::2])])))
        stepwise = estimator()
        for a, b in zip([0, *cuts], [*cuts, len(data.X)], strict=True):
            if b > a:
                stepwise.partial_fit(data.X[a:b], data.z[a:b])
        ways.append(stepwise)
    for est in ways:
        assert_equal_means(est, data)
        assert sum(m.count for m in est.moments_.values()) == sum(m.count for m in whole.moments_.values())


@pytest.mark.parametrize("estimator", ALL)
@share(0.3)
@given(data=structured_rows(classes=2, weighted=False, grouped=False, kinds=(*LIKE, *DEPENDENT), **FEW), draw=st.data())
def test_a_weight_of_two_is_a_row_twice(estimator, data, draw):
    n = len(data.X)
    twice = np.array(draw.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    repeated = np.repeat(np.arange(n), 1 + twice)
    weighted = data._replace(w=1.0 + twice)
    more = data._replace(X=data.X[repeated], z=data.z[repeated])
    a, b = fitted(estimator, weighted), fitted(estimator, more)
    if a is None or b is None:
        assert a is b
        return
    for est in (a, b):
        for other in (weighted, more):
            assert_equal_means(est, other)
    for label in (0, 1):
        one, two = a.moments_[label], b.moments_[label]
        assert one.weight == two.weight
        size = np.sqrt(np.diagonal(two.scatter))
        assert (np.abs(one.scatter - two.scatter) <= 64 * (2 * n) * EPS * np.outer(size, size) + TINY).all()


PER_COLUMN = [rs.MeanMatching, rs.DiagonalTransport, rs.LEACE, rs.MidSteer]
"""Estimators whose map does not depend on the units of the columns."""


@pytest.mark.parametrize("estimator", ALL)
@share(0.3)
@given(data=structured_rows(classes=2, dtypes=(np.float64,), **FEW), draw=st.data())
def test_powers_of_two_pass_through_every_fit(estimator, data, draw):
    d = data.X.shape[1]
    dense = all(
        (data.of(label)[1] is None or (data.of(label)[1] > 0).all()) and (data.z == label).sum() >= d
        for label in (0, 1)
    )
    alone = estimator in PER_COLUMN and dense
    powers = (
        np.array([draw.draw(st.integers(-6, 6)) for _ in range(d)])
        if alone
        else np.full(d, draw.draw(st.integers(-20, 20)))
    )
    scale = data.X.std(axis=0) / max(data.X.std(axis=0).max(), TINY)
    if ((scale > 2.0**-66) & (scale < 2.0**-38)).any():
        return  # near the limit below which a column counts as constant beside the widest one
    plain, scaled = fitted(estimator, data), fitted(estimator, data._replace(X=np.ldexp(data.X, powers)))
    if plain is None or scaled is None:
        assert plain is scaled
        return
    for label, m in plain.maps_.items():
        other = scaled.maps_[label]
        size = np.abs(m.weight) + np.eye(d)
        back = np.ldexp(other.weight, powers - powers[:, None])
        assert_allclose(back, m.weight, rtol=0, atol=1e-12 * size.max())
        assert_allclose(
            np.ldexp(other.bias, -powers), m.bias, rtol=0, atol=1e-12 * (size @ np.abs(data.X).max(axis=0)).max()
        )


@pytest.mark.parametrize("estimator", ALL)
@share(0.3)
@given(
    data=structured_rows(classes=2, dtypes=(np.float64, np.float32), **FEW),
    value=st.sampled_from([np.nan, np.inf, -np.inf]),
)
def test_what_rows_of_weight_zero_hold_changes_nothing(estimator, data, value):
    if data.w is None or (data.w > 0).all():
        return
    right = fitted(estimator, data)
    X = data.X.copy()
    X[data.w == 0] = value
    found = fitted(estimator, data._replace(X=X))
    if right is None:
        assert found is None
        return
    for label, m in right.maps_.items():
        for name, array in m.arrays().items():
            assert (found.maps_[label].arrays()[name] == array).all()
    assert found.certificate_.by_source == right.certificate_.by_source


@given(structured_rows(min_rows=3, max_rows=20, max_d=6, weighted=False, grouped=False), st.integers(0, 2**32 - 1))
def test_the_natural_shift_costs_what_was_asked_and_no_other_has_a_greater_effect(data, seed):
    rng = np.random.default_rng(seed)
    d = data.X.shape[1]
    J = rng.normal(size=(d + 2, d)) * np.exp2(rng.integers(-10, 11, size=d))
    fisher = rs.Fisher(10, J.T @ J)
    G = data.X.astype(float) + np.exp2(rng.integers(-10, 11, size=d)) * rng.normal(size=data.X.shape)
    est = rs.NaturalSteering(kl=0.3, damping=0.0, folds=2).fit(G, fisher=fisher)
    shift = est.map_.shift.astype(np.longdouble)
    F, g = fisher.matrix.astype(np.longdouble), G.astype(np.longdouble).mean(axis=0)
    condition = np.linalg.cond(fisher.matrix)
    price = float(shift @ F @ shift) / 2
    assert price == pytest.approx(0.3, rel=64 * d * EPS * condition)
    best = -float(np.sqrt(0.6 * (g.astype(float) @ np.linalg.solve(fisher.matrix, g.astype(float)))))
    slope = float(g @ shift)
    assert slope == pytest.approx(best, rel=1e-9 + 256 * d * EPS * condition)
    assert est.certificate_.slope * np.sqrt(0.3) == pytest.approx(slope, rel=1e-9 + 256 * d * EPS * condition)
    other = rng.normal(size=d)
    other *= np.sqrt(0.6 / (other @ fisher.matrix @ other))
    assert g @ other >= best * (1 + 256 * d * EPS * condition)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_gradients_whose_squares_leave_float64_are_refused_with_the_remedy(scale):
    G, fisher = structured(0, 12, ("normal", "counts")) + 1, rs.Fisher(10, np.eye(2))
    with pytest.raises(DataError, match="Multiply the credits by a constant"):
        rs.NaturalSteering().fit(G * scale, fisher=fisher)
    shift = rs.NaturalSteering().fit(G, fisher=fisher).map_.shift
    assert_allclose(rs.NaturalSteering().fit(G * 1e90, fisher=fisher).map_.shift, shift, rtol=1e-12)


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("weight", [1e-300, 1e300])
def test_weights_beyond_squares_are_refused_with_the_remedy(estimator, weight):
    X, z = structured(0, 20, ("normal", "counts", "sparse")), np.arange(20) % 2
    with pytest.raises(DataError, match="Multiply all weights by one constant"):
        estimator().fit(X, z, sample_weight=np.full(20, weight))


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("few", [0, 1], ids=["source", "target"])
@pytest.mark.parametrize("rows", [1, 4], ids=["one row", "equal rows"])
def test_a_class_without_a_covariance_is_saved_shown_and_verified(estimator, few, rows, tmp_path):
    kinds = ("normal", "sparse", "constant", "counts")
    X = np.vstack([structured(0, 60, kinds), np.repeat(structured(1, 1, kinds) + 1, rows, axis=0)])
    z = np.where(np.arange(len(X)) < 60, 1 - few, few)
    est = estimator().fit(X, z)
    certificate = est.certificate_
    for record in certificate.by_source.values():
        assert record.residual_bound <= record.covariance_gap * (1 + 1e-9)  # no map has a smaller gap
    rs.save(est, tmp_path / "e")
    loaded = rs.load(tmp_path / "e")
    assert loaded.certificate_ == certificate
    assert loaded.certificate_.to_dict() == certificate.to_dict()
    assert repr(loaded.certificate_) == repr(certificate)
    for record in loaded.certificate_.by_source.values():
        assert "nan" not in repr(record)
    assert "nan" not in certificate_words(loaded.steering_)
    again = loaded.certify(X, z)
    assert again.residual_bound == certificate.residual_bound
    rs.save(loaded.steering_.sealed(again), tmp_path / "s")
    assert rs.load(tmp_path / "s").certificate == again
    loaded.verify(np.tile(X, (5, 1)), np.tile(z, 5))
