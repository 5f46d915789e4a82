"""The value `Fisher`: prices from moments, strengths from budgets, files."""

import numpy as np
import pytest

import repsurgery as rs
from repsurgery.errors import DataError, FileFormatError, ParameterError, ShapeError

D = 5
ROUNDING = 1e-10


def random(seed=0):
    rng = np.random.default_rng(seed)
    R = rng.normal(size=(D, D))
    X = rng.normal(size=(60, D)) @ rng.normal(size=(D, D)) + 1
    return rng, rs.Fisher(7, R @ R.T), X


def maps(rng):
    W, b = rng.normal(size=(D, D)), rng.normal(size=D)
    return [
        rs.Identity(D),
        rs.Translation(b),
        rs.Diagonal(rng.normal(size=D), b),
        rs.LowRank(rng.normal(size=(D, 2)), rng.normal(size=(2, D)), b, 0.7),
        rs.Dense(W, b),
    ]


def over_rows(F, m, X):
    displacement = m(X) - X
    return 0.5 * np.einsum("ij,jk,ik->i", displacement, F, displacement).mean()


@pytest.mark.parametrize("rows", [60, 3])
def test_the_price_from_moments_is_the_mean_over_rows(rows):
    rng, fisher, X = random()
    X = X[:rows]
    z = np.arange(rows) % 2
    for m in maps(rng):
        expected = over_rows(fisher.matrix, m, X)
        for moments in (rs.Moments.of(X), rs.ClassMoments.of(X, z)):
            assert fisher.kl(m, moments) == pytest.approx(expected, rel=ROUNDING)
        assert fisher.kl_on(m, X) == pytest.approx(expected, rel=ROUNDING)
        assert fisher.kl(m, rs.Moments.of(X), strength=0.3) == pytest.approx(0.09 * expected, rel=ROUNDING)
        if expected:
            assert fisher.kl(m.interpolate(0.3), rs.Moments.of(X)) == pytest.approx(0.09 * expected, rel=1e-8)


def test_a_shift_needs_no_moments_and_other_maps_do():
    rng, fisher, _ = random()
    delta = rng.normal(size=D)
    assert fisher.kl(rs.Translation(delta)) == pytest.approx(0.5 * delta @ fisher.matrix @ delta)
    with pytest.raises(ParameterError, match=r"kl\(map, moments\)"):
        fisher.kl(rs.Diagonal(np.ones(D), delta))
    with pytest.raises(ShapeError, match="Use one site"):
        fisher.kl(rs.Translation(np.ones(D + 1)))
    with pytest.raises(ParameterError, match="a fitted estimator"):
        fisher.kl(delta)


def gated(X):
    z = np.repeat(["bad", "good"], [30, 30])
    return rs.MiMiC(source="bad", target="good").fit(X, z)


def test_a_gated_function_is_priced_by_its_gated_positions():
    _, fisher, X = random()
    estimator = gated(X)
    mask = estimator.steering_.masks(X)["bad"]
    assert 0 < mask.sum() < len(X)
    displacement = estimator.transform(X) - X
    expected = 0.5 * np.einsum("ij,jk,ik->i", displacement, fisher.matrix, displacement).mean()
    selected = rs.Moments.of(X[mask])
    for steering in (estimator, estimator.steering_):
        assert fisher.kl(steering, selected, share=mask.mean()) == pytest.approx(expected, rel=1e-8)
    assert fisher.kl(estimator, {"bad": selected}, share={"bad": mask.mean()}) == pytest.approx(expected, rel=1e-8)
    everywhere = rs.MiMiC(source="bad", target="good", gate="always").fit(X, np.repeat(["bad", "good"], [30, 30]))
    assert fisher.kl(everywhere, rs.Moments.of(X)) > expected


def test_a_gated_function_needs_moments_and_share():
    _, fisher, X = random()
    estimator, moments = gated(X), rs.Moments.of(X)
    for given in ({}, {"moments": moments}, {"share": 0.5}):
        with pytest.raises(ParameterError, match="moments of those positions and their share"):
            fisher.kl(estimator, **given)
    with pytest.raises(ParameterError, match="between 0 and 1"):
        fisher.kl(estimator, moments, share=1.5)
    with pytest.raises(ParameterError, match="Moments or ClassMoments"):
        fisher.kl(estimator, X, share=0.5)


def test_several_gated_maps_are_priced_one_by_one():
    _, fisher, X = random()
    z = np.repeat(["a", "b", "good"], 20)
    estimator = rs.MeanMatching(target="good").fit(X, z)
    masks = {label: mask for label, mask in estimator.steering_.masks(X).items() if mask.any()}
    assert len(masks) == 2
    displacement = estimator.transform(X) - X
    expected = 0.5 * np.einsum("ij,jk,ik->i", displacement, fisher.matrix, displacement).mean()
    moments = rs.ClassMoments({label: rs.Moments.of(X[mask]) for label, mask in masks.items()})
    share = {label: mask.mean() for label, mask in masks.items()}
    assert fisher.kl(estimator, moments, share=share) == pytest.approx(expected, rel=1e-8)
    with pytest.raises(ParameterError, match="has 2 maps"):
        fisher.kl(estimator, rs.Moments.of(X), share=0.3)


def test_a_strength_spends_the_budget():
    rng, fisher, X = random()
    moments = rs.Moments.of(X)
    for m in maps(rng)[1:]:
        t = fisher.strength(m, 0.1, moments)
        assert fisher.kl(m, moments, strength=t) == pytest.approx(0.1)
    with pytest.raises(ParameterError, match="no strength reaches"):
        fisher.strength(rs.Identity(D), 0.1, moments)
    for budget in (0, -1, np.nan, np.inf, "0.1", True):
        with pytest.raises(ParameterError, match="positive number of nats"):
            fisher.strength(rs.Translation(np.ones(D)), budget)


def test_a_matrix_survives_its_file(tmp_path):
    _, fisher, _ = random()
    path = tmp_path / "f.safetensors"
    fisher.save(path)
    for again in (rs.Fisher.load(path), rs.load(path)):
        assert (again.count, again.samples) == (7, 0)
        assert (again.matrix == fisher.matrix).all() and again.matrix.dtype == np.float64
    rs.save(fisher, path)
    rs.save(rs.Translation(np.ones(2)), path)
    with pytest.raises(FileFormatError, match="kind"):
        rs.Fisher.load(path)


def test_merging_weighs_by_positions():
    a, b = rs.Fisher(1, np.eye(2)), rs.Fisher(3, 5 * np.eye(2), 16)
    merged = a + b
    assert (merged.count, merged.samples) == (4, 16)
    assert (merged.matrix == 4 * np.eye(2)).all()
    with pytest.raises(ShapeError, match="one site"):
        a + rs.Fisher(1, np.eye(3))


@pytest.mark.parametrize(
    ("one", "other", "merged"), [(0, 0, 0), (0, 4, 4), (4, 0, 4), (4, 16, 4), (16, 4, 4), (3, 3, 3)]
)
def test_a_merged_matrix_has_the_fewest_draws_of_its_parts(one, other, merged):
    # samples says how well a matrix is known; an exact part (0) adds no noise and lowers nothing
    a, b = rs.Fisher(2, np.eye(2), one), rs.Fisher(5, 2 * np.eye(2), other)
    assert (a + b).samples == (b + a).samples == merged
    assert (a + b + rs.Fisher(1, np.eye(2), 2)).samples == 2


def test_what_is_not_a_fisher_matrix_is_refused():
    for matrix in (np.array([[1.0, 2.0], [0.0, 1.0]]), -np.eye(2), np.full((2, 2), np.nan)):
        with pytest.raises(DataError, match="symmetric"):
            rs.Fisher(1, matrix)
    with pytest.raises(ShapeError):
        rs.Fisher(1, np.ones((2, 3)))
    with pytest.raises(DataError, match="0 positions"):
        rs.Fisher(0, np.eye(2))
    with pytest.raises(ValueError, match="read-only"):
        rs.Fisher(1, np.eye(2)).matrix[0, 0] = 2


def test_a_soft_gate_is_priced_on_rows():
    rng, fisher, X = random()
    z = np.where(X[:, 0] > 0, "toxic", "clean")
    gate = rs.calibrate_soft_gate(rs.build_gate("nearest-mean", X, z), X, source="toxic")
    function = rs.SteeringFunction({"toxic": rs.Translation(rng.normal(size=D))}, gate, ("clean", "toxic"))
    with pytest.raises(ParameterError, match=r"fisher\.kl_on\(function, X\)"):
        fisher.kl(function, rs.Moments.of(X), share=0.5)
    moved = function(X) - X
    expected = 0.5 * np.mean(np.einsum("ij,jk,ik->i", moved, fisher.matrix, moved))
    assert fisher.kl_on(function, X) == pytest.approx(expected, rel=1e-10)
    # it costs less than the same shift everywhere, and more than nothing
    assert 0 < expected < fisher.kl(function.maps["toxic"])
