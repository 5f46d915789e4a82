import numpy as np
import pytest
from hypothesis import given
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

import repsurgery as rs
from repsurgery.errors import (
    DataError,
    FileFormatError,
    LabelError,
    ParameterError,
    RowsNeededError,
    SingularCovarianceError,
)
from repsurgery.gates import LinearGate
from tests.strategies import concepts, make_concept


def gate_of(name, X, z, **params):
    return rs.MeanMatching(gate=name, **params).fit(X, z).gate_


def nearest(X, means):
    return ((X[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)


@given(concepts(classes=2))
def test_two_nearest_means_are_one_linear_rule(concept):
    gate = gate_of("nearest-mean", *concept)
    assert isinstance(gate, LinearGate)
    assert gate.coef.shape == (1, concept.X.shape[1])
    means = np.array([concept.of(0).mean(0), concept.of(1).mean(0)])
    assert (gate.predict(concept.X) == nearest(concept.X, means)).all()


@given(concepts(classes=4))
def test_many_nearest_means_compare_all_classes(concept):
    means = np.array([concept.of(c).mean(0) for c in range(4)])
    assert (gate_of("nearest-mean", *concept).predict(concept.X) == nearest(concept.X, means)).all()


@pytest.mark.parametrize("offset", [0.0, 1e5])
@pytest.mark.parametrize("rows", [(80, 120), (60, 90, 50)])
def test_lda_and_qda_read_off_moments_agree_with_scikit_learn(rows, offset):
    X, z = make_concept(0, rows=rows, offset=offset)
    lda = LinearDiscriminantAnalysis(solver="lsqr").fit(X, z)
    assert (gate_of("lda", X, z).predict(X) == lda.predict(X)).all()
    from_moments = rs.MeanMatching.from_moments(rs.ClassMoments.of(X, z), gate="qda").gate_
    # scikit-learn divides by n − 1; with it the log-determinants differ by d·log(1 − 1/n), hence "nearly all"
    agreement = from_moments.predict(X) == QuadraticDiscriminantAnalysis().fit(X, z).predict(X)
    assert agreement.mean() > 0.98
    assert (gate_of("qda", X, z).predict(X) == from_moments.predict(X)).all()


@pytest.mark.parametrize("rows", [(80, 120), (60, 90, 50)])
def test_trained_gates_are_scikit_learn_s_own(rows):
    X, z = make_concept(3, rows=rows)
    scaled = StandardScaler().fit_transform(X)
    logistic = LogisticRegression(max_iter=1000).fit(scaled, z)
    assert (gate_of("logistic", X, z).predict(X) == logistic.predict(scaled)).all()
    with pytest.warns(Warning, match="Maximum iterations"):
        network = MLPClassifier(hidden_layer_sizes=(128,), random_state=0).fit(X, z)
    with pytest.warns(Warning, match="Maximum iterations"):
        ours = gate_of("mlp", X, z, random_state=0)
    assert ours.hidden.shape == (6, 128)
    assert (ours.predict(X) == network.predict(X)).all()


@pytest.mark.parametrize("gate", ["logistic", "mlp"])
def test_gates_that_need_rows_say_which_do_not(gate):
    X, z = make_concept(0)
    moments = rs.ClassMoments.of(X, z)
    for call in (
        lambda: rs.MiMiC.from_moments(moments, gate=gate),
        lambda: rs.MiMiC(gate=gate).partial_fit(X, z),
    ):
        with pytest.raises(RowsNeededError, match="nearest-mean"):
            call()


@pytest.mark.parametrize("gate", ["lda", "qda"])
def test_singular_covariances_need_shrinkage_for_discriminants(gate):
    X, z = make_concept(0, d=30, rows=(12, 12))
    with pytest.raises(SingularCovarianceError, match="oas"):
        gate_of(gate, X, z)
    assert set(gate_of(gate, X, z, shrinkage="oas").predict(X)) <= {0, 1}


def test_a_fitted_classifier_is_a_gate_that_cannot_be_saved(tmp_path):
    X, z = make_concept(0)
    classifier = LogisticRegression().fit(X, z)
    est = rs.MeanMatching(gate=classifier).fit(X, z)
    steered = est.transform(X) != X
    assert (steered.any(axis=1) == (classifier.predict(X) == 0)).all()
    est.verify()
    with pytest.raises(FileFormatError, match="without pickle"):
        rs.save(est, tmp_path / "est.safetensors")
    assert not list(tmp_path.iterdir())
    stranger = LogisticRegression().fit(X, np.where(z, "a", "b"))
    with pytest.raises(LabelError, match="same concept labels"):
        rs.MeanMatching(gate=stranger).fit(X, z).transform(X)


def test_a_fitted_gate_can_be_lent_to_another_estimator(tmp_path):
    X, z = make_concept(0)
    gate = gate_of("logistic", X, z)
    est = rs.MiMiC(gate=gate).fit(X, z)
    assert est.gate_ is gate
    rs.save(est, tmp_path / "est.safetensors")
    assert (rs.load(tmp_path / "est.safetensors").transform(X) == est.transform(X)).all()


def test_unknown_gates_are_named():
    X, z = make_concept(0)
    with pytest.raises(ParameterError, match="nearest-mean"):
        rs.MiMiC(gate="nearest").fit(X, z)
    with pytest.raises(ParameterError, match="fitted classifier"):
        rs.MiMiC(gate=3).fit(X, z)
    with pytest.raises(LabelError, match="concept=z"):
        rs.MiMiC(gate="labels").fit(X, z).transform(X)
    X3, z3 = make_concept(0, rows=(30, 30, 30))
    with pytest.raises(ParameterError, match="Name one source"):
        rs.MiMiC(gate="always").fit(X3, z3)


def test_rows_outside_the_mask_come_back_bit_for_bit():
    X, z = make_concept(0, dtype=np.float32)
    est = rs.MiMiC(gate="nearest-mean").fit(X, z)
    source = est.gate_.predict(X) == 0
    assert 0 < source.sum() < len(X)
    Y = est.transform(X)
    assert (Y[~source] == X[~source]).all()
    assert (Y[source] == est.map_(X[source])).all()
    by_labels = est.transform(X, concept=z)
    assert (by_labels[z == 1] == X[z == 1]).all()
    assert (by_labels[z == 0] == est.map_(X[z == 0])).all()
    assert (rs.MiMiC(gate="always").fit(X, z).transform(X) == est.map_(X)).all()


@pytest.mark.parametrize("source", ["a", "b"])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.333, 0.9, 1.0])
def test_a_calibrated_gate_has_its_rate(source, rate):
    rng = np.random.default_rng(0)
    X, z = rng.normal(size=(400, 5)), np.repeat(["a", "b"], 200)
    X[200:, 0] += 2
    gate = rs.MeanMatching(source=source).fit(X, z).gate_
    met = rng.normal(size=(1000, 5)) + 5
    calibrated = rs.calibrate_gate(gate, met, source=source, rate=rate)
    assert np.mean(calibrated.predict(met) == source) == pytest.approx(rate, abs=0.0011)
    assert np.mean(gate.predict(met) == source) != pytest.approx(rate, abs=0.0011) or rate in (0.0, 1.0)
    # only the threshold moves: whoever scored as more of the source still does
    assert np.array_equal(calibrated.coef, gate.coef)


@pytest.mark.parametrize("source", ["a", "b"])
@pytest.mark.parametrize("rate", [0.0, 0.05, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("rows", ["equal", "tied", "all zero", "far out", "one ulp apart"])
def test_a_calibrated_gate_never_exceeds_its_rate(source, rate, rows):
    rng = np.random.default_rng(1)
    X, z = rng.normal(size=(400, 5)), np.repeat(["a", "b"], 200)
    X[200:, 0] += 2
    gate = rs.MeanMatching(source=source).fit(X, z).gate_
    met = {
        "equal": np.tile(rng.normal(size=5), (20, 1)),
        "tied": np.repeat(rng.normal(size=(5, 5)), 4, axis=0),
        "all zero": np.zeros((20, 5)),
        "far out": 1e12 + rng.normal(size=(20, 5)),
        "one ulp apart": np.vstack([np.ones((10, 5)), np.full((10, 5), np.nextafter(1.0, 2.0))]),
    }[rows]
    calibrated = rs.calibrate_gate(gate, met, source=source, rate=rate)
    steered = calibrated.predict(met) == source
    assert steered.mean() <= rate
    # alone or among others, in whatever memory order, a row is judged alike
    assert [calibrated.predict(row[None])[0] == source for row in met] == steered.tolist()
    assert (calibrated.predict(np.asfortranarray(met)) == calibrated.predict(met)).all()
    if rate == 1.0:
        assert steered.all()
    if rows == "tied":
        assert steered.mean() > rate - 0.2  # as many of the groups of four as fit


def test_only_a_gate_with_one_threshold_is_calibrated():
    X, z = np.random.default_rng(0).normal(size=(90, 3)), np.repeat(["a", "b", "c"], 30)
    with pytest.raises(ParameterError, match="no single threshold"):
        rs.calibrate_gate(rs.MeanMatching(source="a", target="b").fit(X, z).gate_, X, source="a", rate=0.1)
    two = rs.MeanMatching(source="a").fit(X[:60], z[:60]).gate_
    with pytest.raises(LabelError, match="classes of the gate"):
        rs.calibrate_gate(two, X, source="c", rate=0.1)
    for rate in (-0.1, 1.1, float("nan")):
        with pytest.raises(ParameterError, match="share between 0 and 1"):
            rs.calibrate_gate(two, X, source="a", rate=rate)
    with pytest.raises(DataError, match="NaN"):
        rs.calibrate_gate(two, np.full((2, 3), np.nan), source="a", rate=0.1)
