"""Certificates are measured on rows by formulas of their own, so that they contradict wrong moments."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.linalg import qr

import repsurgery as rs
from repsurgery.errors import CertificateError, DataError, HeldOutWarning, ParameterError, RowsNeededError, SketchError
from repsurgery.moments import accumulate
from repsurgery.moments.sketch import Sketch
from repsurgery.studies.common.report.certificates import certificate_table
from tests.oracles import two_pass
from tests.strategies import EPS, share, structured, structured_rows

PAIRED = [rs.MeanMatching, rs.TraceMatching, rs.DiagonalTransport, rs.MiMiC]
KINDS = ("sparse", "constant", "counts", "same", "normal", "zero", "tied", "sum", "one row", "far")
AGREEMENT = 1e-7
"""Relative to the scale of the rows: a map of gain g multiplies their rounding, and gaps are differences of squares."""


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rs.errors.SurgeryWarning)
        yield


def quietly_fitted(estimator, X, z, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rs.errors.SurgeryWarning)
        return estimator.fit(X, z, **options)


def by_two_passes(steered, target, w=(None, None)):
    """Return mean gap, relative covariance gap, EBBN, and the scales of mean and covariance, from the rows alone."""
    (mean_a, S_a), (mean_b, S_b) = (two_pass(X, v) for X, v in zip((steered, target), w, strict=True))
    weights = [len(X) if v is None else v.sum() for X, v in zip((steered, target), w, strict=True)]
    A, B = S_a / weights[0], S_b / weights[1]
    gap = float(np.linalg.norm(mean_a - mean_b))
    ebbn = abs(np.trace(A) - np.trace(B) - gap**2)
    return gap, float(np.linalg.norm(A - B)), ebbn, float(np.linalg.norm(B))


@pytest.mark.parametrize("estimator", PAIRED)
@share(0.6)
@given(data=structured_rows(classes=2, min_rows=3, grouped=False, dtypes=(np.float64,)))
def test_figures_are_those_of_the_steered_rows_by_two_passes(estimator, data):
    fitted = quietly_fitted(estimator(source=0, target=1), data.X, data.z, sample_weight=data.w)
    c = fitted.certificate_
    assert c.measured_on == "rows"
    (X, w), (Y, v) = data.of(0), data.of(1)
    steered = fitted.maps_[0].apply(X)
    gap, difference, ebbn, norm = by_two_passes(steered, Y, (w, v))
    # rounding of rows far from zero, or of a map that stretches them, is as large as this
    size = max(np.abs(steered).max(), np.abs(data.X).max(), 1e-300) * max(c.gain, 1.0)
    assert c.mean_gap == pytest.approx(gap, abs=AGREEMENT * size)
    assert c.ebbn == pytest.approx(ebbn, abs=AGREEMENT * size**2)
    d = X.shape[1]
    if norm > d * (64 * (d + 4) * EPS * size) ** 2:  # else the target's rows are equal up to rounding
        assert c.covariance_gap * norm == pytest.approx(difference, abs=AGREEMENT * size**2)
    moved = np.square(steered - X).sum(axis=1)
    assert c.cost == pytest.approx(np.average(moved, weights=w), rel=1e-9, abs=1e-12 * size**2)


def dropped(X, rows, w):
    """Return what moments were before the mend: the last row of an unpivoted triangular factor is dropped."""
    Z = X[rows].astype(np.float64)
    mean = Z.mean(axis=0)
    R = qr(Z - mean, mode="r")[0][: len(Z)][:-1]
    return (mean, np.zeros_like(mean)), R, Sketch.of(Z)


def test_a_wrong_statistic_is_named_by_the_sketch_and_by_the_rows(monkeypatch):
    X, z = structured(0, 60, ("sparse", "constant", "counts", "same", "zero") * 10), np.repeat([0, 1], 30)
    right = quietly_fitted(rs.MiMiC(source=0, target=1), X, z).certificate_
    assert right.covariance_gap < 1e-10
    monkeypatch.setattr("repsurgery.moments.moments.factor_of", dropped)
    with pytest.raises(SketchError, match="Count the rows again"):
        quietly_fitted(rs.MiMiC(source=0, target=1), X, z)
    # with the sketch silenced, the rows still show what the map does
    monkeypatch.setattr(Sketch, "require_agreement", lambda *_, **__: None)
    wrong = quietly_fitted(rs.MiMiC(source=0, target=1), X, z)
    _, difference, _, norm = by_two_passes(wrong.transform(X, concept=z)[z == 0], X[z == 1])
    assert difference / norm > 0.01
    assert wrong.certificate_.covariance_gap == pytest.approx(difference / norm, rel=1e-6)
    # and the certificate of the moments alone does not, which is why rows are measured
    from_moments = rs.MiMiC(source=0, target=1).fit_moments(wrong.moments_).certificate_
    assert from_moments.measured_on == "moments"
    assert from_moments.covariance_gap < 1e-10


def test_the_words_of_a_certificate_follow_the_rows_and_not_the_moments(monkeypatch):
    rng = np.random.default_rng(0)
    X, z = rng.normal(size=(600, 4)), np.repeat([0, 1], 300)
    X[z == 1] += 0.9
    before = np.linalg.norm(X[z == 0].mean(axis=0) - X[z == 1].mean(axis=0))
    for estimator in (rs.MeanMatching, rs.LEACE):
        right = estimator().fit(X, z).certificate_
        assert "the same mean" in str(right) or "have the mean of" in " ".join(str(right).split())
        real, counted = accumulate.scatter_of, []

        def shifted(*rows, real=real, counted=counted, **options):
            (mean, residue), S, sketch = real(*rows, **options)
            counted.append(mean)
            return (mean + 0.5 * (len(counted) == 1), residue), 3 * S, sketch

        with monkeypatch.context() as wrong:
            wrong.setattr("repsurgery.moments.moments.scatter_of", shifted)
            wrong.setattr(Sketch, "require_agreement", lambda *_, **__: None)
            certificate = estimator().fit(X, z).certificate_
        record = certificate.by_source[0]
        assert record.mean_gap > 0.1
        assert record.mean_gap_before == pytest.approx(before)
        assert record.probe_r2 > 1e-3
        assert "gaps are left between the means" in " ".join(str(certificate).split())


def test_the_words_on_a_continuous_concept_follow_the_rows(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = X[:, 0] + 0.1 * rng.normal(size=80)
    est = rs.LEACE(concept_type="continuous")
    right = " ".join(str(est.fit(X, y).certificate_).split())
    assert "no linear probe of the erased rows predicts the concept" in right
    apply = rs.LowRank.apply
    monkeypatch.setattr(rs.LowRank, "apply", lambda self, H: H + 0.5 * (apply(self, H) - H))
    half = est.fit(X, y).certificate_
    assert half.r2_after[0] > 0.1
    assert "the best linear probe of the erased rows explains" in " ".join(str(half).split())


def test_a_target_of_equal_rows_is_reached(seed=0):
    rng = np.random.default_rng(seed)
    for rows in (1, 5):
        X, z = np.vstack([rng.normal(size=(20, 12)), np.full((rows, 12), 3.0)]), np.repeat([0, 1], [20, rows])
        record = quietly_fitted(rs.MiMiC(source=0, target=1), X, z).certificate_.by_source[0]
        assert (record.covariance_gap, record.variance_gap, record.covariance_gap_before) == (0, 0, np.inf)
        plain = quietly_fitted(rs.MeanMatching(source=0, target=1), X, z).certificate_.by_source[0]
        assert plain.covariance_gap == np.inf  # the counter-check: mean matching leaves the spread of the source


@pytest.mark.parametrize("estimator", [rs.TraceMatching, rs.DiagonalTransport])
def test_distances_that_grow_on_rows_left_out_are_warned_of(estimator):
    rng = np.random.default_rng(3)
    X, z = rng.standard_t(2, size=(40, 6)), np.arange(40) % 2
    with pytest.warns(HeldOutWarning, match="expected distances to neighbours"):
        certificate = estimator(folds=3).fit(X, z).certificate_
    assert certificate.held_out.ebbn > certificate.held_out.ebbn_before
    assert "distances to neighbours goes from" in " ".join(str(certificate).split())


def test_all_rows_of_a_large_class_contradict_wrong_moments(monkeypatch):
    n, kinds = 6000, ("sparse", "counts", "normal", "far")
    X, z = structured(0, 2 * n, kinds), np.repeat([0, 1], n)
    est = rs.MiMiC(source=0, target=1)
    record = est.fit(X, z).certificate_.by_source[0]
    assert (record.measured_source, record.measured_target) == (4096, 4096)
    assert "all rows confirm along four directions and 4,096 rows" in " ".join(repr(est.certificate_).split())
    real = accumulate.scatter_of

    def halved(X, rows, w, *, float32_products):
        centre, S, sketch = real(X, rows, w, float32_products=float32_products)
        S[2, 2] /= 2
        return centre, S, sketch

    monkeypatch.setattr("repsurgery.moments.moments.scatter_of", halved)
    with pytest.raises(SketchError, match="the sum of squares of column 2"):
        rs.MiMiC(source=0, target=1).fit(X, z)
    monkeypatch.setattr(Sketch, "require_agreement", lambda *_, **__: None)
    with pytest.raises(CertificateError, match="the rows contradict the moments that the map was fitted from"):
        rs.MiMiC(source=0, target=1).fit(X, z)


def test_a_map_that_is_not_the_certified_one_is_named(monkeypatch):
    X, z = structured(0, 9000, ("normal", "counts", "sparse")), np.arange(9000) % 2
    est = rs.DiagonalTransport(source=0, target=1).fit(X, z)
    apply = rs.Diagonal.apply
    monkeypatch.setattr(rs.Diagonal, "apply", lambda self, H: apply(self, H) * (1 + 1e-8))
    with pytest.raises(CertificateError, match="applied to rows, is not the one"):
        rs.DiagonalTransport(source=0, target=1).fit(X, z)
    assert est.certificate_.measured_on == "rows"


WRONG_MOMENTS = {
    "the scatter a millionth too large": lambda mean, S: (mean, S * (1 + 1e-6)),
    "the mean moved by a millionth of the spread": lambda mean, S: (mean + 1e-6 * np.sqrt(np.diagonal(S) / 300), S),
}


@pytest.mark.parametrize("name", WRONG_MOMENTS)
def test_all_rows_of_a_class_see_a_millionth(name, monkeypatch):
    X, z = structured(0, 600, ("sparse", "counts", "normal")), np.repeat([0, 1], 300)
    monkeypatch.setattr("repsurgery.certificates.on_rows.MOST_ROWS", 100)
    right = rs.MiMiC(source=0, target=1).fit(X, z).certificate_
    assert right.by_source[0].measured_source == 100
    real = accumulate.scatter_of

    def wrong(X, rows, w, *, float32_products):
        (mean, residue), S, sketch = real(X, rows, w, float32_products=float32_products)
        mean, S = WRONG_MOMENTS[name](mean, S)
        return (mean, residue), S, sketch

    monkeypatch.setattr("repsurgery.moments.moments.scatter_of", wrong)
    with pytest.raises(SketchError):
        rs.MiMiC(source=0, target=1).fit(X, z)
    monkeypatch.setattr(Sketch, "require_agreement", lambda *_, **__: None)
    with pytest.raises(CertificateError, match="the rows contradict the moments"):
        rs.MiMiC(source=0, target=1).fit(X, z)
    # the gap between the means is that of the sketch's own count, whatever the moments say
    monkeypatch.setattr("repsurgery.certificates.on_rows._require_agreement", lambda *_: None)
    found = rs.MeanMatching(source=0, target=1).fit(X, z)
    gap = np.linalg.norm(found.transform(X, concept=z)[z == 0].mean(axis=0) - X[z == 1].mean(axis=0))
    assert found.certificate_.mean_gap == pytest.approx(gap, abs=1e-12)


def test_the_cost_is_that_of_the_rows(monkeypatch):
    X, z = structured(0, 60, ("sparse", "constant", "counts", "same", "zero") * 10), np.repeat([0, 1], 30)
    monkeypatch.setattr("repsurgery.moments.moments.factor_of", dropped)
    monkeypatch.setattr(Sketch, "require_agreement", lambda *_, **__: None)
    wrong = quietly_fitted(rs.MiMiC(source=0, target=1), X, z)
    moved = np.square(wrong.transform(X, concept=z)[z == 0] - X[z == 0]).sum(axis=1).mean()
    assert wrong.certificate_.cost == pytest.approx(moved, rel=1e-9)
    from_moments = rs.MiMiC(source=0, target=1).fit_moments(wrong.moments_).certificate_
    assert abs(from_moments.cost / moved - 1) > 1e-6


def test_certificates_say_whether_rows_or_moments_were_measured():
    X, z = structured(1, 80, KINDS), np.repeat([0, 1], 40)
    moments = rs.ClassMoments.of(X, z)
    for estimator in PAIRED:
        fitted = quietly_fitted(estimator(source=0, target=1), X, z)
        assert (fitted.certificate_.measured_on, fitted.certificate_.data) == ("rows", "fitting moments")
        derived = estimator(source=0, target=1).fit_moments(moments)
        assert (derived.certificate_.measured_on, derived.certificate_.data) == ("moments", "fitting moments")
        assert estimator(source=0, target=1).partial_fit(X, z).certificate_.measured_on == "moments"
        # on so few rows both agree, up to rounding of squares
        for name in ("mean_gap", "covariance_gap", "ebbn", "cost"):
            mine, other = getattr(fitted.certificate_, name), getattr(derived.certificate_, name)
            assert mine == pytest.approx(other, rel=1e-6, abs=1e-6)
    again = fitted.certify(X, z)
    assert (again.measured_on, again.data) == ("rows", "given rows")
    rated = rs.LEACE(concept_type="continuous").fit(X, X[:, 2] + z)
    assert rated.certificate_.measured_on == "rows"
    assert rated.certify(X, X[:, 2] + z).measured_on == "rows"
    assert rs.LEACE(concept_type="continuous").partial_fit(X, X[:, 2] + z).certificate_.measured_on == "moments"


def test_certify_steers_every_row_of_large_classes():
    X, z = structured(0, 11000, ("normal", "counts", "sparse")), np.arange(11000) % 2
    est = rs.MiMiC(source=0, target=1).fit(X, z)
    pair = est.certify(X, z).by_source[0]
    assert (pair.measured_source, pair.measured_target) == (5500, 5500)
    Y = structured(5, 11000, ("normal", "counts", "sparse"))
    new = est.certify(Y, z)
    gap, difference, ebbn, norm = by_two_passes(est.transform(Y, concept=z)[z == 0], Y[z == 1])
    assert_allclose([new.mean_gap, new.covariance_gap, new.ebbn], [gap, difference / norm, ebbn], rtol=1e-9)


WORDS = {
    "rows": "On the rows of the fit",
    "moments": "On the moments that it was fitted from",
    "given": "On the given rows",
}
CAPTIONS = {
    "rows": "Measured on the rows of the fit, each of them",
    "moments": "Measured on the moments of the fitted rows; no rows were at hand",
    "given": "Measured on the given rows, each of them",
}


def test_every_rendering_says_which_rows_a_figure_is_about():
    X, z = structured(1, 80, KINDS), np.repeat([0, 1], 40)
    est = quietly_fitted(rs.MiMiC(source=0, target=1, folds=4), X, z)
    cases = {
        "rows": est.certificate_,
        "moments": rs.MiMiC(source=0, target=1).fit_moments(est.moments_).certificate_,
        "given": est.certify(X, z),
    }
    for name, certificate in cases.items():
        for text in (repr(certificate), certificate._repr_html_()):
            assert WORDS[name] in " ".join(text.split())
        assert ("rows left out of the fit (4 folds)" in " ".join(repr(certificate).split())) == (name == "rows")
        caption = certificate_table(certificate).caption
        assert {"rows": "rows of the fit", "moments": "moments of the fitted rows", "given": "given rows"}[
            name
        ] in caption
    assert (
        "Measured on the moments of the fitted rows; no rows were at hand"
        in certificate_table(cases["moments"]).caption
    )
    assert "rows left out of the fit (4 folds)" in certificate_table(cases["rows"]).caption
    rated = rs.LEACE(concept_type="continuous", folds=3).fit(X, X[:, 2] + z)
    assert "R² on rows left out" in repr(rated.certificate_)
    assert "3 folds" in str(certificate_table(rated.certificate_).rows)


# --- rows left out


def gaussian(n, d, seed=0, spread=0.15):
    """Return rows of two classes whose covariances differ by about ``spread``, in relative terms."""
    rng = np.random.default_rng(seed)
    scale = np.sqrt(1 + spread * np.sign(np.linspace(-1, 1, d)))
    return np.vstack([rng.normal(size=(n, d)), rng.normal(size=(n, d)) * scale]), np.repeat([0, 1], n)


def test_gaps_on_rows_left_out_are_those_of_the_population():
    n, d, folds = 300, 64, 5
    X, z = gaussian(n, d)
    with pytest.warns(HeldOutWarning, match="the gap between the covariances is .* without steering"):
        warnings.simplefilter("always", HeldOutWarning)
        c = rs.MiMiC(source=0, target=1, folds=folds).fit(X, z).certificate_
    assert c.covariance_gap < 1e-12
    # oracle: maps of as many rows as the folds leave, on the population's own covariances
    scale = 1 + 0.15 * np.sign(np.linspace(-1, 1, d))
    gaps = []
    for seed in range(1, 9):
        X, z = gaussian(n * (folds - 1) // folds, d, seed)
        W = quietly_fitted(rs.MiMiC(source=0, target=1), X, z).map_.weight
        gaps.append(np.linalg.norm(W @ W.T - np.diag(scale)) / np.linalg.norm(scale))
    assert c.held_out.covariance_gap == pytest.approx(np.mean(gaps), rel=0.15)
    assert c.held_out.covariance_gap_before < 0.3
    assert c.held_out.covariance_gap > 2 * c.held_out.covariance_gap_before
    # mean matching learns no covariance, so that it leaves the gap as it is
    mean = rs.MeanMatching(source=0, target=1, folds=folds).fit(*gaussian(n, d)).certificate_
    assert mean.held_out.covariance_gap == pytest.approx(mean.held_out.covariance_gap_before, rel=1e-6)


def test_with_many_rows_the_gap_on_rows_left_out_closes():
    X, z = structured(0, 8000, ("normal", "counts", "sparse")), np.repeat([0, 1], 4000)
    X[z == 1] = X[z == 1] @ np.diag([2.0, 1.5, 1.0]) + 1
    c = rs.MiMiC(source=0, target=1, folds=5).fit(X, z).certificate_
    assert c.held_out.mean_gap < 0.1 * c.held_out.mean_gap_before
    assert c.held_out.covariance_gap < 0.3 * c.held_out.covariance_gap_before


@given(structured_rows(classes=2, min_rows=9, max_rows=40), st.integers(2, 3))
def test_groups_are_never_split_between_folds(data, folds):
    from repsurgery.moments.shrinkage import FitRows
    from repsurgery.steering.held_out import fold_of_rows

    rows = FitRows(data.X, data.z, [0, 1], data.w, data.groups)
    try:
        fold = fold_of_rows(rows, folds)
    except DataError as error:
        assert "Choose fewer folds" in str(error)
        return
    assert set(fold) <= set(range(folds))
    units = np.arange(len(data.X)) if data.groups is None else data.groups
    for unit in np.unique(units):
        assert len(set(fold[units == unit])) == 1
    counted = np.ones(len(data.X), bool) if data.w is None else data.w > 0
    for c in (0, 1):
        sizes = [len(set(units[(fold == f) & (data.z == c) & counted])) for f in range(folds)]
        assert min(sizes) >= 2
        assert max(sizes) - min(sizes) <= folds


@pytest.mark.parametrize("seed", range(12))
def test_groups_that_span_classes_leave_enough_of_each_class_in_every_fold(seed):
    # 12 texts of which 6 have rows of both classes, as sentences of two speakers have
    rng = np.random.default_rng(seed)
    groups = np.concatenate([np.repeat(np.arange(12), 3), np.repeat(rng.choice(12, 6, replace=False), 4)])
    X, z = structured(seed, 60, KINDS), np.repeat([0, 1], [36, 24])
    held_out = quietly_fitted(rs.MeanMatching(source=1, target=0, folds=3), X, z, groups=groups).certificate_.held_out
    assert np.isfinite([held_out.mean_gap, held_out.covariance_gap, held_out.ebbn]).all()
    with pytest.raises(DataError, match=r"0 has 12, 1 has 6; 6 of these groups have rows of several .*fewer folds"):
        rs.MeanMatching(source=1, target=0, folds=4).fit(X, z, groups=groups)


@given(structured_rows(classes=3, min_rows=12, max_rows=60, max_d=3), st.integers(2, 4))
def test_wherever_classes_have_many_groups_folds_are_found(data, folds):
    from repsurgery.moments.shrinkage import FitRows
    from repsurgery.steering.held_out import fold_of_rows, usual_folds

    groups = np.arange(len(data.X)) // 2  # each has rows of one class or of two
    rows = FitRows(data.X, data.z, [0, 1, 2], None, groups)
    fewest = min(len(set(groups[data.z == c])) for c in range(3))
    if fewest < 3 * folds:
        return
    fold = fold_of_rows(rows, folds)
    for c in range(3):
        sizes = [len(set(groups[(fold == f) & (data.z == c)])) for f in range(folds)]
        assert min(sizes) >= 2
        assert max(sizes) - min(sizes) <= folds
    assert usual_folds(data.z, groups) >= folds


def test_maps_of_folds_come_from_the_other_rows_alone():
    X, z = gaussian(60, 5)
    c = rs.MeanMatching(source=0, target=1, folds=3).fit(X, z).certificate_
    from repsurgery.moments.shrinkage import FitRows
    from repsurgery.steering.held_out import fold_of_rows

    fold = fold_of_rows(FitRows(X, z, [0, 1], None), 3)
    squares = []
    for f in range(3):
        m = rs.MeanMatching(source=0, target=1).fit(X[fold != f], z[fold != f]).map_
        A, B = m.apply(X[(fold == f) & (z == 0)]), X[(fold == f) & (z == 1)]
        noise = sum(np.trace(np.cov(Y.T)) / len(Y) for Y in (A, B))
        squares.append(np.square(A.mean(axis=0) - B.mean(axis=0)).sum() - noise)
    assert c.held_out.mean_gap == pytest.approx(np.sqrt(max(np.mean(squares), 0)), rel=1e-9)


def test_a_continuous_concept_has_figures_on_rows_left_out():
    rng = np.random.default_rng(0)
    X = structured(0, 400, KINDS)
    Z = np.stack([X[:, 2] + rng.normal(size=400), X[:, 4]], axis=1)
    h = rs.LEACE(concept_type="continuous", folds=4).fit(X, Z).certificate_.held_out
    assert h.folds == 4
    assert len(h.covariance_after) == len(h.r2_after) == 2
    assert all(after < before / 2 for after, before in zip(h.r2_after, h.r2_before, strict=True))


def test_held_out_figures_travel_with_the_file(tmp_path):
    X, z = gaussian(60, 5)
    for est, labels in (
        (rs.MiMiC(source=0, target=1, folds=3), z),
        (rs.LEACE(concept_type="continuous", folds=3), X[:, 0]),
    ):
        quietly_fitted(est, X, labels)
        rs.save(est.steering_, tmp_path / "f")
        loaded = rs.load(tmp_path / "f").certificate
        assert loaded == est.certificate_
        assert loaded.held_out == est.certificate_.held_out
        assert type(loaded).from_dict(loaded.to_dict()) == loaded


@pytest.mark.parametrize("folds", [1, 0, 2.5, "five"])
def test_impossible_folds_are_refused(folds):
    X, z = gaussian(20, 3)
    with pytest.raises(ParameterError, match="folds"):
        rs.MiMiC(source=0, target=1, folds=folds).fit(X, z)


def test_too_many_folds_and_moments_are_refused_with_the_remedy():
    X, z = gaussian(20, 3)
    with pytest.raises(DataError, match="Choose fewer folds"):
        rs.MiMiC(source=0, target=1, folds=11).fit(X, z)
    with pytest.raises(RowsNeededError, match=r"Call fit\(X, z\), or choose folds=None"):
        rs.MiMiC(source=0, target=1, folds=5).partial_fit(X, z)
    with pytest.raises(RowsNeededError, match="folds=None"):
        rs.MiMiC.from_moments(rs.ClassMoments.of(X, z), source=0, target=1, folds=5)


def test_weights_count_rows_and_the_worst_class_is_stated_on_rows_left_out():
    # three classes: the first is far from the target in spread, so that its gaps are the worst
    rng = np.random.default_rng(0)
    X = np.vstack([3 * rng.normal(size=(60, 4)), 1.1 * rng.normal(size=(60, 4)), rng.normal(size=(60, 4))])
    z = np.repeat([0, 1, 2], 60)
    both = quietly_fitted(rs.MeanMatching(target=2, folds=3), X, z).certificate_.held_out
    one = quietly_fitted(rs.MeanMatching(source=0, target=2, folds=3), X, z).certificate_.held_out
    other = quietly_fitted(rs.MeanMatching(source=1, target=2, folds=3), X, z).certificate_.held_out
    for name in ("covariance_gap_before", "ebbn_before"):
        assert getattr(one, name) > 2 * getattr(other, name)
    # MeanMatching leaves the traces apart: 4 · (9 − 1) is the population's
    assert one.ebbn == pytest.approx(32, rel=0.25)
    assert both.ebbn >= one.ebbn * 0.5
    # rows of almost no weight do not count
    w = np.ones(len(X))
    w[:20] = 1e-6
    X[:20] += 50
    light = quietly_fitted(rs.MeanMatching(source=0, target=2, folds=3), X, z, sample_weight=w).certificate_.held_out
    assert light.ebbn == pytest.approx(32, rel=0.4)


def test_rows_of_one_group_are_one_row_for_the_sampling_error_left_out():
    # each text has its own offset, and 30 rows of it say no more of the population's mean than one does
    rng = np.random.default_rng(0)
    found = {True: [], False: []}
    for _ in range(12):
        groups = np.arange(600) // 30
        X = rng.normal(size=(20, 4))[groups] + 0.01 * rng.normal(size=(600, 4))
        for given_groups in found:
            est = rs.MeanMatching(source=0, target=1, folds=2)
            # the same folds: only the sampling error differs
            c = quietly_fitted(est, X, np.arange(600) // 300, groups=groups).certificate_.held_out
            found[given_groups].append(
                c.mean_gap_before if given_groups else np.linalg.norm(X[:300].mean(axis=0) - X[300:].mean(axis=0))
            )
    # the population's means are equal: the naive gap is all sampling error
    assert np.square(found[True]).mean() < 0.6 * np.square(found[False]).mean()


def test_a_continuous_map_that_harms_new_rows_is_warned_of():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 30))
    with pytest.warns(HeldOutWarning, match="rows and column 0"):
        warnings.simplefilter("always", HeldOutWarning)
        rs.LEACE(concept_type="continuous", folds=2).fit(X, rng.normal(size=40))


def test_columns_on_rows_are_those_of_weighted_two_passes():
    X = structured(0, 80, ("sparse", "counts", "normal", "tied"))
    Z = np.stack([X[:, 0] + np.arange(80) / 9, X[:, 3] ** 2], axis=1)
    w = np.linspace(0.1, 5, 80)
    est = rs.LEACE(concept_type="continuous").fit(X, Z, sample_weight=w)
    other = np.roll(Z, 7, axis=0)
    for c, concept in ((est.certificate_, Z), (est.certify(X, other), other)):
        v = w if concept is Z else np.ones(80)
        for H, stated in ((X, c.covariance_before), (est.transform(X), c.covariance_after)):
            joint = np.column_stack([H, concept])
            S = two_pass(joint, v)[1] / v.sum()
            norms = np.linalg.norm(S[:4, 4:], axis=0) / np.sqrt(np.diagonal(S)[4:])
            assert_allclose(stated, norms, rtol=1e-9, atol=1e-12)
    assert min(c.covariance_after) > 1e-3  # another concept is not erased


# --- bad input


def test_constant_rows_single_rows_and_almost_equal_rows_are_measured():
    flat = np.full((6, 3), 2.5)
    z = np.repeat([0, 1], 3)
    c = rs.MiMiC(source=0, target=1).fit(flat, z).certificate_
    assert (c.mean_gap, c.covariance_gap, c.ebbn) == (0, 0, 0)
    one = np.array([[1.0, 2.0], [4.0, 2.0]])
    c = rs.MiMiC(source=0, target=1).fit(one, [0, 1]).certificate_
    assert c.mean_gap == pytest.approx(0, abs=1e-15)
    assert c.cost == pytest.approx(9)
    almost = np.vstack([flat, flat])
    almost[0, 1] += 1e-3
    c = rs.MeanMatching(source=0, target=1).fit(almost, np.repeat([0, 1], 6)).certificate_
    assert c.mean_gap < 1e-15
    assert c.by_source[0].mean_gap_before == pytest.approx(1e-3 / 6)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_scales_that_squares_leave_are_refused_with_the_remedy(scale):
    X, z = gaussian(20, 3)
    with pytest.raises(DataError, match=r"Divide X by a constant|Multiply X by a constant"):
        rs.MiMiC(source=0, target=1).fit(X * scale, z)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_of_weight_zero_may_hold_anything(value):
    X, z = gaussian(20, 3)
    w = np.ones(len(X))
    w[[3, 25]] = 0
    right = rs.MiMiC(source=0, target=1, folds=2).fit(X, z, sample_weight=w)
    X[[3, 25], 1] = value
    with np.errstate(invalid="ignore"):
        found = rs.MiMiC(source=0, target=1, folds=2).fit(X, z, sample_weight=w)
    assert replace(found.certificate_, digest="") == replace(right.certificate_, digest="")
    with pytest.raises(DataError, match="NaN or infinity, first at row 3, column 1"):
        rs.MiMiC(source=0, target=1).fit(X, z)
