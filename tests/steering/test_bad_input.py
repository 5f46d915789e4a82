"""The bad-input list: a typed error that says what to do, or the right answer where it is well defined."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.linear_model import LogisticRegression

import repsurgery as rs
from repsurgery.errors import (
    DataError,
    GainWarning,
    InfeasibleWarning,
    LabelError,
    NotNumericError,
    ParameterError,
    RowsNeededError,
    ShapeError,
    SurgeryError,
)
from tests.estimators import ALL, EQUAL_MEANS
from tests.strategies import make_concept

X, Z = make_concept(0)


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("d", [6, 400])
def test_nan_and_infinity_are_located(estimator, value, d):
    bad = np.ones((150, d), dtype=np.float32)
    bad[17, 4] = value
    with pytest.raises(DataError, match="row 17, column 4"):
        estimator().fit(bad, Z)
    fitted = estimator().fit(X, Z)
    with pytest.raises(DataError, match="row 2, column 1"):
        wrong = X.copy()
        wrong[2, 1] = value
        fitted.transform(wrong)


@pytest.mark.parametrize("estimator", ALL)
def test_wrong_shapes(estimator):
    est = estimator().fit(X, Z)
    with pytest.raises(ShapeError, match="Extract X at the site"):
        est.transform(X[:, :3])
    with pytest.raises(ShapeError, match="one row per vector"):
        est.transform(X[0])
    with pytest.raises(ShapeError, match="one row per vector"):
        estimator().fit(X[None], Z)
    with pytest.raises(ShapeError, match="0 sample"):
        estimator().fit(np.empty((0, 4)), [])
    with pytest.raises(ShapeError, match=r"0 feature\(s\)"):
        estimator().fit(np.empty((4, 0)), [0, 1, 0, 1])
    with pytest.raises(LabelError, match="one label per row"):
        estimator().fit(X, Z[:-1])
    with pytest.raises(LabelError, match="one label per row"):
        estimator().fit(X, np.stack([Z, Z], axis=1))


@pytest.mark.parametrize("estimator", ALL)
def test_things_that_are_not_numbers(estimator):
    with pytest.raises(NotNumericError, match=r"[Ss]parse"):
        estimator().fit(sparse.csr_array(X), Z)
    with pytest.raises(NotNumericError):
        estimator().fit(np.full(X.shape, "a"), Z)
    with pytest.raises(NotNumericError, match="Complex"):
        estimator().fit(X + 1j, Z)
    with pytest.raises(SurgeryError):
        estimator().fit("text", Z)
    with pytest.raises(SurgeryError):
        estimator().fit(None, Z)


@pytest.mark.parametrize("estimator", ALL)
def test_labels_that_are_no_concept(estimator):
    with pytest.raises(LabelError, match="1 class only"):
        estimator().fit(X, np.zeros(len(X)))
    with pytest.raises(LabelError, match="quantile_bins"):
        estimator().fit(X, np.linspace(0, 1, len(X)))
    with pytest.raises(LabelError, match="requires y"):
        estimator().fit(X)
    with pytest.raises(LabelError, match="NaN"):
        estimator().fit(X, np.where(Z, np.nan, 0.0))
    with pytest.raises(LabelError, match="missing labels"):
        estimator().fit(X, [None if c else "a" for c in Z])
    with pytest.raises(LabelError, match="several or unknown types"):
        estimator().fit(X, np.array(["a" if c else 1 for c in Z], dtype=object))
    with pytest.raises(LabelError, match="Convert them"):
        estimator().fit(X, np.array(Z, dtype="datetime64[D]"))


@pytest.mark.parametrize(
    "labels", [Z.astype(float), Z.astype(bool), np.where(Z, "b", "a"), Z[:, None], Z.tolist(), torch.tensor(Z)]
)
def test_every_kind_of_categorical_label_gives_the_same_map(labels):
    assert (rs.MiMiC().fit(X, labels).map_.weight == rs.MiMiC().fit(X, Z).map_.weight).all()


@pytest.mark.parametrize("labels", [[np.nan, "a"], [1, "a"], [True, 2], [None, 0], [b"x", b"y"]])
def test_lists_of_mixed_or_missing_labels_are_not_made_into_strings(labels):
    with pytest.raises(LabelError, match=r"types|missing"):
        rs.MeanMatching().fit(X, [labels[c] for c in Z])
    with pytest.raises(LabelError, match=r"types|missing"):
        rs.MeanMatching().fit(X, np.array([labels[1 - c] for c in Z], dtype=object))


@pytest.mark.parametrize("estimator", ALL)
def test_a_class_may_be_called_anything(estimator):
    named = estimator().fit(X, np.where(Z, "x", "all"))
    assert (named.transform(X, concept=np.where(Z, "x", "all")) == estimator().fit(X, Z).transform(X, concept=Z)).all()


@pytest.mark.parametrize("estimator", EQUAL_MEANS)
def test_classes_without_any_spread_are_shifted(estimator, capfd):
    rows, z = np.repeat([[1.0, 2.0, 3.0], [4.0, 0.0, 1.0]], 8, axis=0), np.repeat([0, 1], 8)
    est = estimator().fit(rows, z)
    steered = est.transform(rows, concept=z)
    assert_allclose(steered[:8], steered[8:], atol=1e-12)
    assert "illegal value" not in "".join(capfd.readouterr())


def test_gates_that_do_not_fit_are_refused_at_fit():
    other = rs.MeanMatching(gate="logistic").fit(X, np.where(Z, "b", "a")).gate_
    with pytest.raises(LabelError, match="same concept labels"):
        rs.MeanMatching(gate=other).fit(X, Z)
    for gate in ("nearest-mean", "qda"):
        narrow = rs.MeanMatching(gate=gate).fit(X[:, :3], Z).gate_
        with pytest.raises(ShapeError, match="reads 3 features"):
            rs.MeanMatching(gate=narrow).fit(X, Z)
    for gate in (np.ones(6), LogisticRegression):
        with pytest.raises(ParameterError, match="fitted classifier"):
            rs.MeanMatching(gate=gate).fit(X, Z)


def test_what_belongs_to_the_caller_stays_with_the_caller():
    shift = np.zeros(2)
    m = rs.Translation(shift)
    shift[0] = 5
    assert m.shift.tolist() == [0, 0]


def test_several_maps_hide_map_from_hasattr():
    rows, z = make_concept(0, rows=(30, 30, 30))
    est = rs.MiMiC().fit(rows, z)
    assert not hasattr(est, "map_")
    assert hasattr(rs.MiMiC().fit(X, Z), "map_")


def test_neutral_may_be_a_numpy_scalar(tmp_path):
    rows, z = make_concept(0, rows=(30, 30, 30))
    est = rs.MidSteer(source=0, target=1, neutral=np.int64(2)).fit(rows, z)
    rs.save(est, tmp_path / "m")
    assert rs.load(tmp_path / "m").certificate_.neutral == 2


def test_an_eraser_checks_labels_it_does_not_need():
    est = rs.LEACE().fit(X, Z)
    with pytest.raises(LabelError, match="one label per row"):
        est.transform(X, concept=Z[:3])
    with pytest.raises(LabelError, match="Unknown"):
        est.transform(X, concept=Z + 7)


def test_object_columns_of_strings_are_labels():
    est = rs.MeanMatching().fit(X, np.where(Z, "b", "a").astype(object))
    assert est.classes_.tolist() == ["a", "b"]


@pytest.mark.parametrize("estimator", [rs.MeanMatching, rs.MiMiC, rs.TraceMatching, rs.DiagonalTransport, rs.MidSteer])
def test_source_and_target(estimator):
    with pytest.raises(LabelError, match="both 1"):
        estimator(source=1, target=1).fit(X, Z)
    with pytest.raises(LabelError, match="no class 'x'"):
        estimator(source="x").fit(X, Z)
    with pytest.raises(LabelError, match="no class '1'"):
        estimator(target="1").fit(X, Z)
    with pytest.raises(LabelError, match="Leave one of them"):
        estimator(source=[0, 1]).fit(X, Z)
    with pytest.raises(LabelError, match="source is empty"):
        estimator(source=[]).fit(X, Z)
    assert list(estimator(source=1).fit(X, Z).maps_) == [1]
    assert list(estimator(target=0).fit(X, Z).maps_) == [1]
    est = estimator(source=np.int64(0), target=np.int64(1)).fit(X, Z)
    with pytest.raises(LabelError, match="Unknown concept labels"):
        est.transform(X, concept=Z + 3)


def test_parameters_are_checked_by_name():
    with pytest.raises(ParameterError, match="ledoit-wolf"):
        rs.MiMiC(shrinkage="strong").fit(X, Z)
    for ridge in (-1, np.nan, np.inf, "1", None, True):
        with pytest.raises(ParameterError, match="finite number >= 0"):
            rs.MiMiC(shrinkage="ridge", ridge=ridge).fit(X, Z)
    with pytest.raises(ParameterError, match="float32-products"):
        rs.MiMiC(precision="float16").fit(X, Z)
    with pytest.raises(ParameterError, match="uniform"):
        rs.BarycenterErasure(weights="equal").fit(X, Z)
    with pytest.raises(ParameterError, match="ClassMoments"):
        rs.MiMiC.from_moments(X)
    with pytest.raises(TypeError, match="strength"):
        rs.MiMiC.from_moments(rs.ClassMoments.of(X, Z), strength=1)
    for call in (
        lambda: rs.MiMiC.from_moments(rs.ClassMoments.of(X, Z), shrinkage="ledoit-wolf"),
        lambda: rs.MiMiC(shrinkage="ledoit-wolf").fit(X, Z, sample_weight=np.ones(len(X))),
    ):
        with pytest.raises(RowsNeededError, match="oas"):
            call()
    with pytest.raises(LabelError, match="no class 'x'"):
        rs.MidSteer(neutral="x").fit(X, Z)
    for params in ({"neutral": 0}, {"source": 0, "neutral": 0}):
        with pytest.raises(LabelError, match="another neutral"):
            rs.MidSteer(**params).fit(X, Z)


@pytest.mark.parametrize("estimator", EQUAL_MEANS)
def test_a_class_with_one_row_has_a_mean_and_no_spread(estimator):
    rows, z = np.vstack([X[:1] + 5, X[1:]]), np.array([0] + [1] * (len(X) - 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleWarning)
        est = estimator().fit(rows, z)
    steered = est.transform(rows, concept=z)
    assert_allclose(steered[:1].mean(0), steered[1:].mean(0), atol=1e-9)
    if estimator in (rs.MiMiC, rs.TraceMatching, rs.DiagonalTransport):
        assert not est.certificate_.feasible


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("scale", [1e-20, 1e20])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scales_far_from_one(estimator, scale, dtype):
    plain = estimator().fit(X, Z)
    est = estimator().fit((X * scale).astype(dtype), Z)
    for label, m in plain.maps_.items():
        assert_allclose(est.maps_[label].weight, m.weight, atol=1e-4)
        assert_allclose(est.maps_[label].bias / scale, m.bias, atol=1e-4)
    assert np.isfinite(est.transform((X * scale).astype(dtype))).all()


@pytest.mark.parametrize("estimator", EQUAL_MEANS)
def test_columns_of_very_different_scale(estimator):
    scales = np.geomspace(1e-3, 1e3, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GainWarning)  # an oblique projection between such columns does stretch
        est = estimator().fit(X * scales, Z)
    steered = est.transform(X * scales, concept=Z)
    gap = steered[Z == 0].mean(0) - steered[Z == 1].mean(0)
    assert np.abs(gap / scales).max() < 1e-6


@pytest.mark.parametrize("estimator", ALL)
def test_nothing_is_mutated_and_any_memory_layout_serves(estimator):
    reference = estimator().fit(X, Z)
    wide = np.zeros((2 * len(X), 12))
    wide[::2, ::2] = X
    layouts = [np.asfortranarray(X), wide[::2, ::2], X[::-1][::-1]]
    for layout in layouts:
        layout.flags.writeable = False
        before = layout.copy()
        est = estimator().fit(layout, Z)
        out = est.transform(layout)
        assert (layout == before).all()
        assert_allclose(out, reference.transform(X), atol=1e-9)
        assert out.flags.writeable


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize(("dtype", "out"), [("float32", "float32"), ("float64", "float64"), ("int32", "float32")])
def test_dtypes(estimator, dtype, out):
    rows = (X * 100).astype(dtype)
    assert estimator().fit(rows, Z).transform(rows).dtype == out


def test_tensors_that_carry_gradients_are_read_not_changed():
    T = torch.tensor(X, requires_grad=True)
    est = rs.MiMiC().fit(T, torch.tensor(Z))
    assert (est.transform(T) == rs.MiMiC().fit(X, Z).transform(X)).all()
    assert T.requires_grad


def test_a_failed_fit_leaves_the_estimator_as_it_was():
    est = rs.MiMiC().fit(X, Z)
    before = est.transform(X)
    with pytest.raises(LabelError):
        est.fit(X, np.zeros(len(X)))
    assert (est.transform(X) == before).all()


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("exponent", [-300, -200, -150, -90, -60, -36, -34, -20, 20, 34, 36, 60, 90, 150, 200, 300])
@pytest.mark.parametrize("rows", [(60, 90), (3, 4)])
def test_at_any_scale_the_result_is_right_or_refused(estimator, exponent, rows):
    concept = make_concept(0, rows=rows)
    scale = 2.0 ** round(np.log2(10.0) * exponent)  # a power of two rounds nothing
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (GainWarning, InfeasibleWarning))
        expected = estimator().fit(*concept).certificate_.by_source[0]
        try:
            found = estimator().fit(scale * concept.X, concept.z).certificate_.by_source[0]
        except DataError as error:
            assert abs(exponent) > 34
            assert "by a constant" in str(error)
            return
    assert abs(exponent) <= 35
    assert_allclose(found.mean_gap_before / scale, expected.mean_gap_before, rtol=1e-9)
    assert_allclose(found.covariance_gap_before, expected.covariance_gap_before, rtol=1e-9)
    assert_allclose(found.covariance_gap, expected.covariance_gap, rtol=1e-6, atol=1e-9)
    assert_allclose(found.gain, expected.gain, rtol=1e-3)


def test_rows_whose_squares_vanish_are_refused_even_about_zero():
    tiny = np.array([[1e-200], [-1e-200], [2e-200], [-2e-200]])
    with pytest.raises(DataError, match="by a constant"):
        rs.MiMiC().fit(tiny, [0, 0, 1, 1])


def test_labels_that_an_array_would_merge_are_refused_or_kept():
    rows = np.random.default_rng(0).normal(size=(6, 2))
    for labels in ([2**63, 2**63 + 1, -1] * 2, ["a\0", "a", "b"] * 2, np.array(["a\0", "a"] * 3, dtype=object)):
        with pytest.raises(LabelError, match="apart"):
            rs.MeanMatching().fit(rows, labels)
    with pytest.raises(LabelError, match="apart"):
        rs.MeanMatching().fit(rows, np.array(["a\0", "a"] * 3, dtype=np.dtypes.StringDType()))
    with pytest.raises(LabelError, match="apart"):
        rs.MeanMatching().fit(rows, np.array([2**63, 2**63 + 1, 0] * 2, dtype=np.uint64))
    large = rs.MeanMatching().fit(rows, [2**63, 2**63 + 1] * 3)
    assert large.classes_.tolist() == [2**63, 2**63 + 1]


def test_masked_entries_are_refused():
    mask = np.zeros(len(X), dtype=bool)
    mask[3] = True
    with pytest.raises(LabelError, match="masked"):
        rs.MeanMatching().fit(X, np.ma.masked_array(Z, mask))
    with pytest.raises(DataError, match="masked"):
        rs.MeanMatching().fit(np.ma.masked_array(X, np.tile(mask[:, None], X.shape[1])), Z)
    with pytest.raises(DataError, match="masked"):
        rs.MeanMatching().fit(X, Z, sample_weight=np.ma.masked_array(np.ones(len(X)), mask))
    unmasked = rs.MeanMatching().fit(np.ma.masked_array(X), np.ma.masked_array(Z))
    assert (unmasked.map_.shift == rs.MeanMatching().fit(X, Z).map_.shift).all()


@pytest.mark.parametrize("dtype", ["string", "Int64", "category", object])
def test_missing_labels_of_pandas_are_refused(dtype):
    labels = pd.Series([pd.NA if i == 5 else (str(v) if dtype == "string" else int(v)) for i, v in enumerate(Z)])
    with pytest.raises(LabelError, match=r"missing|NaN"):
        rs.MeanMatching().fit(X, labels.astype(dtype))
