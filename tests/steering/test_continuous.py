"""A continuous concept: erased exactly, certified by what was measured, verified on rows, or binned into classes."""

import numpy as np
import pandas as pd
import pytest
import torch
from concept_erasure import LeaceEraser, LeaceFitter
from numpy.testing import assert_allclose
from scipy.stats import binom
from sklearn.linear_model import LinearRegression

import repsurgery as rs
from repsurgery.certificates.verify import LEVEL, verdict_of
from repsurgery.errors import (
    CertificateError,
    DuplicateWarning,
    FileFormatError,
    LabelError,
    LabelWarning,
    ParameterError,
    SurgeryError,
)


def rated(seed=0, n=400, d=8, k=1, noise=2.0):
    """Return rows (n, d) that depend on a concept (n, k), and the concept."""
    rng, fixed = np.random.default_rng(seed), np.random.default_rng(99)
    A, B = fixed.normal(size=(d, d)), fixed.normal(size=(k, d))
    z = rng.gamma(2.0, size=(n, k))
    return noise * rng.normal(size=(n, d)) @ A + z @ B + 5, z[:, 0] if k == 1 else z


def erase(**params):
    return rs.LEACE(concept_type="continuous", **params)


def r2(X, z):
    return LinearRegression().fit(X, z).score(X, z)


@pytest.mark.parametrize("k", [1, 3])
def test_a_continuous_concept_is_erased_as_the_authors_erase_it(k):
    X, z = rated(k=k)
    ours = erase().fit(X, z)
    columns = torch.tensor(z.reshape(len(z), -1))
    peer = LeaceEraser.fit(torch.tensor(X), columns, shrinkage=False)
    assert_allclose(ours.transform(X), peer(torch.tensor(X)).numpy(), atol=1e-8)
    fitter = LeaceFitter(X.shape[1], k, shrinkage=False, dtype=torch.float64)
    for part in np.array_split(np.arange(len(X)), 3):
        fitter.update(torch.tensor(X[part]), columns[part])
    assert_allclose(ours.map_.weight, fitter.eraser.P.numpy(), atol=1e-8)
    assert ours.map_.rank == k


@pytest.mark.parametrize("shrinkage", ["none", "ridge", "oas", "ledoit-wolf"])
def test_nothing_linear_is_left_and_the_certificate_measures_it(shrinkage):
    X, z = rated(k=2)
    est = erase(shrinkage=shrinkage).fit(X, z)
    erased = est.transform(X)
    certificate = est.certificate_
    assert np.abs(np.cov(erased.T, z.T)[:8, 8:]).max() < 1e-10
    assert_allclose(certificate.r2_before, [r2(X, z[:, j]) for j in (0, 1)], rtol=1e-9)
    assert min(certificate.r2_before) > 0.1
    assert max(certificate.r2_after) < 1e-12
    assert max(r2(erased, z[:, j]) for j in (0, 1)) < 1e-10
    standard = (z - z.mean(axis=0)) / z.std(axis=0)
    before = np.linalg.norm((X - X.mean(axis=0)).T @ standard / len(X), axis=0)
    assert_allclose(certificate.covariance_before, before, rtol=1e-10)
    assert max(certificate.covariance_after) < 1e-10
    assert_allclose(certificate.cost, np.square(erased - X).sum(axis=1).mean(), rtol=1e-9)
    assert_allclose(erased.mean(axis=0), X.mean(axis=0), atol=1e-10)
    if shrinkage == "none":
        assert_allclose(certificate.cost, certificate.optimal_cost, rtol=1e-9)
        # an orthogonal projection erases too, and costs more
        c = (X - X.mean(axis=0)).T @ standard
        Q = np.linalg.qr(c)[0]
        assert np.square((X - X.mean(axis=0)) @ Q).sum(axis=1).mean() > certificate.cost


def test_the_scale_and_offset_of_a_concept_change_nothing():
    X, z = rated()
    assert_allclose(erase().fit(X, z).map_.weight, erase().fit(X, 1e6 - 1e3 * z).map_.weight, atol=1e-9)
    doubled = erase().fit(X, np.column_stack([z, 2 * z + 1]))
    assert doubled.map_.rank == 1
    assert_allclose(doubled.map_.weight, erase().fit(X, z).map_.weight, atol=1e-9)


def test_two_values_are_erased_as_two_classes():
    X, z = rated()
    high = z > np.median(z)
    assert_allclose(erase().fit(X, high).map_.weight, rs.LEACE().fit(X, high).map_.weight, atol=1e-10)


def test_weights_count_rows():
    X, z = rated(n=100)
    w = np.random.default_rng(0).integers(0, 4, len(X))
    weighted = erase().fit(X, z, sample_weight=w)
    repeated = erase().fit(np.repeat(X, w, axis=0), np.repeat(z, w))
    assert_allclose(weighted.map_.weight, repeated.map_.weight, atol=1e-9)


def test_fewer_rows_than_features_are_erased():
    X, z = rated(n=20, d=50)
    est = erase().fit(X, z)
    assert np.abs(np.cov(est.transform(X).T, z)[:-1, -1]).max() < 1e-10


def test_cross_moments_merge_and_remove_exactly(tmp_path):
    X, z = rated(k=2, n=300)
    X[150:] += 1e3
    whole = rs.CrossMoments.of(X, z)
    first, second = rs.CrossMoments.of(X[:120], z[:120]), rs.CrossMoments.of(X[120:], z[120:])
    assert_allclose((first + second).cross, whole.cross, rtol=1e-9, atol=1e-6)
    assert_allclose((whole - second).cross, first.cross, atol=1e-5)
    assert_allclose(first.update(X[120:], z[120:]).cross, whole.cross, rtol=1e-9, atol=1e-6)
    assert (whole - whole).count == 0
    assert_allclose(whole.covariance, np.cov(X.T, z.T, bias=True)[:8, 8:], rtol=1e-9, atol=1e-9)
    whole.save(tmp_path / "m")
    for loaded in (rs.CrossMoments.load(tmp_path / "m"), rs.load(tmp_path / "m")):
        assert (loaded.cross == whole.cross).all()
        assert (loaded.rows.mean == whole.rows.mean).all()


def test_partial_fits_and_moments_give_the_map_of_all_rows(tmp_path):
    X, z = rated()
    whole = erase().fit(X, z)
    part = erase()
    for rows in np.array_split(np.arange(len(X)), 4):
        part.partial_fit(X[rows], z[rows])
    assert_allclose(part.map_.weight, whole.map_.weight, atol=1e-9)
    other = rs.LEACE.from_moments(rs.CrossMoments.of(X, z), concept_type="continuous")
    assert_allclose(other.map_.weight, whole.map_.weight, atol=1e-12)
    rs.save(whole, tmp_path / "est")
    loaded = rs.load(tmp_path / "est")
    assert (loaded.transform(X) == whole.transform(X)).all()
    assert loaded.certificate_ == whole.certificate_
    with pytest.warns(DuplicateWarning, match="rows are counted twice"):
        again = loaded.partial_fit(X, z)
    assert_allclose(again.map_.weight, whole.map_.weight, atol=1e-9)
    rs.save(whole.steering_, tmp_path / "function")
    assert rs.load(tmp_path / "function").verify().verdict == "cannot tell"
    assert rs.load(tmp_path / "function").certificate == whole.certificate_


def test_the_kind_of_moments_must_fit_the_kind_of_concept():
    X, z = rated()
    classes, numbers = rs.ClassMoments.of(X, z > 2), rs.CrossMoments.of(X, z)
    with pytest.raises(ParameterError, match="takes ClassMoments"):
        rs.LEACE.from_moments(numbers)
    with pytest.raises(ParameterError, match="takes CrossMoments"):
        rs.LEACE.from_moments(classes, concept_type="continuous")
    with pytest.raises(ParameterError, match="ClassMoments"):
        rs.MiMiC.from_moments(numbers)


def test_a_forged_file_of_a_continuous_concept_is_refused(tmp_path):
    from repsurgery.files import Contents, write_file
    from repsurgery.moments.cross import cross_to_contents

    X, z = rated()
    contents = cross_to_contents(rs.CrossMoments.of(X, z))
    for forged in (contents.arrays["cross"] * 1e3, contents.arrays["cross"][:-1]):
        write_file(tmp_path / "m", Contents(contents.kind, contents.header, {**contents.arrays, "cross": forged}))
        with pytest.raises(FileFormatError):
            rs.load(tmp_path / "m")
    plain = erase().fit(X, z).certificate_.to_dict()
    for bad in ({"r2_after": [2.0]}, {"r2_after": []}, {"cost": -1.0}, {"rows": 0}, {"gain": float("nan")}):
        with pytest.raises(SurgeryError):
            rs.ContinuousCertificate.from_dict({**plain, **bad})
    assert rs.ContinuousCertificate.from_dict(plain) == erase().fit(X, z).certificate_


def test_numbers_are_continuous_only_if_asked_for():
    X, z = rated()
    for method in (rs.LEACE, rs.MiMiC):
        with pytest.raises(LabelError, match=r"LEACE\(concept_type='continuous'\).*quantile_bins"):
            method().fit(X, z)
    with pytest.raises(LabelError, match=r"concept_type='continuous'\) takes several"):
        rs.LEACE().fit(X, np.column_stack([z, z]))
    ratings = np.round(np.minimum(z, 4))  # whole numbers stay classes, and are numbers where asked for
    assert len(rs.LEACE().fit(X, ratings).classes_) == len(np.unique(ratings))
    assert erase().fit(X, ratings.astype(int)).map_.rank == 1
    with pytest.raises(AttributeError):
        _ = erase().fit(X, z).classes_


@pytest.mark.parametrize(
    ("z", "message"),
    [
        (["a"] * 400, "not made of real numbers"),
        (np.full(400, 2.5), "needs at least two values"),
        (np.column_stack([np.arange(400.0), np.ones(400)]), "Column 1"),
        (np.ones(3), "shape"),
        (np.ones((400, 2, 2)), "shape"),
        (np.r_[np.nan, np.ones(399)], "row 0, column 0"),
        (np.ma.masked_less(np.arange(400.0), 2), "masked"),
        (None, "requires y"),
        (pd.Series(["1.5"] * 400), "not made of real numbers"),
        (np.full(400, 1 + 2j), "not made of real numbers"),
    ],
)
def test_a_bad_concept_is_refused_with_a_remedy(z, message):
    with pytest.raises(LabelError, match=message):
        erase().fit(rated()[0], z)


def test_an_unknown_type_of_concept_is_refused():
    with pytest.raises(ParameterError, match="'classes', 'continuous'"):
        rs.LEACE(concept_type="numeric").fit(*rated())


def test_frames_and_tensors_are_concepts():
    X, z = rated()
    expected = erase().fit(X, z).map_.weight
    for given in (pd.Series(z), pd.DataFrame({"stars": z}), torch.tensor(z), z.tolist(), z[:, None]):
        assert_allclose(erase().fit(X, given).map_.weight, expected)


KINDS = {
    "gamma": lambda rng, n: rated(rng.integers(2**31), n),
    "ratings": lambda rng, n: _from(rng, rng.choice([1.0, 2, 3, 4, 5], n, p=[0.02, 0.03, 0.1, 0.25, 0.6])),
    "skewed": lambda rng, n: _from(rng, np.exp(1.2 * rng.normal(size=n))),
    "heavy tails": lambda rng, n: _from(rng, rng.normal(size=n), rng.standard_t(3, size=(n, 8))),
    "sparse": lambda rng, n: _from(rng, rng.normal(size=n), 1.0 * (rng.random((n, 8)) < 0.01)),
}


def _from(rng, z, noise=None):
    B = np.random.default_rng(5).normal(size=8)
    return (rng.normal(size=(len(z), 8)) if noise is None else noise) + np.outer(z / z.std(), B), z


@pytest.mark.parametrize("kind", KINDS)
def test_false_alarms_of_a_continuous_concept_stay_below_the_level(kind):
    alarms, repeats = 0, 0
    for sizes in ((200, 200), (2000, 20), (60, 500)):
        for seed in range(15):
            rng = np.random.default_rng([seed, *sizes])
            est = erase().fit(*KINDS[kind](rng, sizes[0]))
            new = KINDS[kind](rng, sizes[1])
            alarms += verdict_of(lambda est=est, new=new: rs.verify(est.steering_, *new)) == "contradicted"
            repeats += 1
    assert alarms <= binom.isf(1e-4, repeats, LEVEL)


def test_many_rows_support_an_erasure_and_contradict_one_that_leaves_a_fifth():
    X, z = _from(np.random.default_rng(0), np.random.default_rng(1).normal(size=6000))
    est = erase().fit(X[:3000], z[:3000])
    assert est.verify(X[3000:], z[3000:]).verification_.verdict == "supported"
    weak = est.steering_.interpolate(0.8).sealed(est.certificate_)
    with pytest.raises(CertificateError, match="column 0 of the concept"):
        rs.verify(weak, X[3000:], z[3000:])
    with pytest.raises(CertificateError, match="altered or cast"):
        rs.verify(est.steering_.astype(np.float16))


def test_groups_widen_the_sampling_error_of_a_continuous_concept():
    rng = np.random.default_rng(0)
    X, z = _from(rng, rng.normal(size=200))
    X, z, groups = np.repeat(X, 20, axis=0), np.repeat(z, 20), np.repeat(np.arange(200), 20)
    half, verdicts = slice(0, 2000), []
    for given in (np.arange(4000), groups):
        est = erase().fit(X[half], z[half], groups=given[half])
        new = X[2000:], z[2000:]
        verdicts.append(verdict_of(lambda e=est, new=new, g=given[2000:]: rs.verify(e.steering_, *new, groups=g)))
    assert est.certificate_.effective_rows < 150
    # every row was repeated twenty times: taken as independent, they raise a false alarm
    assert verdicts == ["contradicted", "cannot tell"]


def test_certify_measures_a_continuous_concept_on_new_rows():
    X, z = rated(n=800)
    est = erase().fit(X[:400], z[:400])
    fresh = est.certify(X[400:], z[400:])
    assert fresh.data == "given rows"
    assert fresh.digest == est.certificate_.digest
    assert_allclose(fresh.r2_after[0], r2(est.transform(X[400:]), z[400:]), rtol=1e-6)
    assert 0 < fresh.r2_after[0] < fresh.r2_before[0] / 4
    with pytest.raises(LabelError, match="2 columns"):
        est.certify(X, np.column_stack([z, z]))


def test_bins_without_ties_are_equally_large():
    rng = np.random.default_rng(0)
    for n, k in ((10, 3), (101, 4), (50, 50), (2, 2), (999, 12)):
        sizes = np.unique(rs.quantile_bins(rng.normal(size=n), k), return_counts=True)[1]
        assert len(sizes) == k
        assert np.ptp(sizes) <= 1


def test_equal_numbers_share_a_bin():
    z = np.array([1.0] * 50 + [2.0, 3.0, 4.0, 5.0] * 10)
    with pytest.warns(LabelWarning, match="become 3"):
        bins = rs.quantile_bins(z, 4)
    assert all(len(set(bins[z == value])) == 1 for value in np.unique(z))
    # the names sort as the numbers do
    assert (np.sort(bins) == bins[np.argsort(z, kind="stable")]).all()
    many = rs.quantile_bins(np.arange(120.0), 12)
    assert (np.sort(many) == many).all()
    assert many[0] == "01 of 12: up to 9"


def test_bins_of_other_rows_have_the_same_names():
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=200), 3 * rng.normal(size=50)
    assert set(rs.quantile_bins(test, 4, like=train)) <= set(rs.quantile_bins(train, 4))
    assert (rs.quantile_bins(train, 4, like=train) == rs.quantile_bins(train, 4)).all()


def test_close_bounds_have_different_names():
    names = np.unique(rs.quantile_bins(1000 + np.arange(8) / 1e6, 4))
    assert len(names) == 4
    assert "1000.000001" in names[0]


def test_numbers_that_cannot_be_binned_are_refused():
    for z, k, message in (([2.0] * 9, 3, "equal"), ([1.0, np.nan], 2, "NaN"), (np.ones((4, 2)), 2, "each column")):
        with pytest.raises(LabelError, match=message):
            rs.quantile_bins(z, k)
    for k in (1, 2.5, True):
        with pytest.raises(ParameterError):
            rs.quantile_bins([1.0, 2.0], k)
    with pytest.raises(LabelError):
        rs.quantile_bins([], 2)


def test_bins_serve_the_methods_that_need_classes():
    X, z = rated()
    bins = rs.quantile_bins(z, 3)
    est = rs.MiMiC(target=min(bins)).fit(X, bins)
    assert len(est.classes_) == 3
    assert est.certificate_.mean_gap < 1e-9
