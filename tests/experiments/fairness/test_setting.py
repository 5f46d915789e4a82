"""The protocol on rows of a known law: claims hold, interrupted work goes on, damaged work is done again."""

from dataclasses import replace

import numpy as np
import pytest

import repsurgery as rs
from repsurgery import metrics
from repsurgery.classifiers import SoftmaxRegression
from repsurgery.datasets import make_bios
from repsurgery.errors import CacheWarning, DataError, LabelError
from repsurgery.experiments.fairness import make_spec, setting
from repsurgery.experiments.fairness.concept import concept_gate
from repsurgery.experiments.fairness.methods import balancing_weights
from repsurgery.experiments.fairness.rows import SPLITS, Part, StudyRows, random_splits
from repsurgery.experiments.fairness.setting import run_setting
from repsurgery.experiments.fairness.stages import Stages

SPEC = make_spec(
    "bios",
    "released",
    methods=["leace", "mean", "mimic", "xian"],
    head="converged",
    neighbour_counts=[1, 8],
    neighbour_queries=100,
    cosine_rows=50,
    probe_rows=500,
    alphas=[0.0, 0.1],
    resamples=50,
)


def rows(n=3000, d=16, professions=4, seed=0):
    data = make_bios(n, d, professions, seed=seed)
    words = np.array(["female", "male"])[data.concepts], data.labels.astype(str)
    parts = {name: Part(data.X[s], words[1][s], words[0][s]) for name, s in data.splits.items()}
    return StudyRows(**parts)


def silent(step):
    pass


@pytest.fixture(scope="module")
def study():
    return rows()


@pytest.fixture(scope="module")
def result(study, tmp_path_factory):
    return run_setting(SPEC, study, Stages.of(tmp_path_factory.mktemp("s"), {}), announce=silent)


def test_the_numbers_of_the_base_are_those_of_a_plain_classifier(study, result):
    y_hat = SoftmaxRegression().fit(study.train.X, study.train.y).predict(study.test.X)
    base = result.methods[0]
    assert base.method == "base"
    assert base.measures["test.accuracy"].value == pytest.approx(np.mean(y_hat == study.test.y), abs=1e-12)
    expected = metrics.tpr_gap_rms(study.test.y, y_hat, study.test.z)
    assert base.measures["test.tpr_gap_rms"].value == pytest.approx(expected, abs=1e-12)
    assert base.gaps == metrics.tpr_gap(study.test.y, y_hat, study.test.z)


def test_mimic_is_fitted_on_gold_and_test_rows_are_steered_by_what_the_gate_reads(study, result, tmp_path):
    # recomputed by hand from the estimator, without any code of the protocol but its gate
    gate, _ = concept_gate(SPEC, study.train, Stages.of(tmp_path, {}))
    mimic = rs.MiMiC("female", "male", shrinkage="ridge", ridge=1e-5, gate="labels").fit(study.train.X, study.train.z)
    X_train = mimic.transform(study.train.X, concept=study.train.z)
    X_test = mimic.transform(study.test.X, concept=gate.predict(study.test.X))
    y_hat = SoftmaxRegression().fit(X_train, study.train.y).predict(X_test)
    found = result.method("mimic").measures["test.tpr_gap_rms"].value
    assert found == pytest.approx(metrics.tpr_gap_rms(study.test.y, y_hat, study.test.z), abs=2e-3)
    gold = SoftmaxRegression().fit(X_train, study.train.y).predict(mimic.transform(study.test.X, concept=study.test.z))
    assert (gold != y_hat).any()  # the choice of labels shows


def test_each_choice_of_labels_changes_the_outcome(study, result, tmp_path):
    for name in ("fit_labels", "train_labels", "test_labels"):
        other = "gold" if getattr(SPEC, name) == "predicted" else "predicted"
        # a gate that errs: otherwise gold and predicted are the same rows
        changed = replace(SPEC, methods=("base", "mean"), concept_classifier="linear", early_stopping=False)
        here, there = (
            run_setting(spec, study, Stages.of(tmp_path, {"n": name, "v": v}), announce=silent)
            for v, spec in enumerate((changed, replace(changed, **{name: other})))
        )
        assert here.concept["train.accuracy"] < 1
        assert here.method("mean") != there.method("mean"), name
        assert here.method("base").gaps == there.method("base").gaps


def test_steering_brings_what_the_theory_says(result):
    base, mimic = result.method("base"), result.method("mimic")
    assert mimic.certificate["mean_gap"] < 1e-6 * base.measures["ebbn"].value
    assert mimic.measures["ebbn"].value < 0.2 * base.measures["ebbn"].value
    assert mimic.neighbours["8"].value < base.neighbours["8"].value - 0.1
    assert mimic.differences["neighbours.8"].high < 0
    assert base.measures["probe.linear"].value > 0.9
    # LEACE leaves nothing linear on the rows it was fitted on, and little on others
    assert result.method("leace").certificate["probe_r2"] < 1e-9
    assert result.method("leace").measures["probe.linear"].value < base.measures["probe.linear"].value - 0.25
    assert base.certificate is None and base.supported is None
    assert result.chance == pytest.approx(0.5, abs=0.05)


def test_post_processing_rows_follow_the_sweep(result):
    names = [m.method for m in result.methods if m.method.startswith("xian")]
    assert len(names) == 2 * 2 * 2
    loose = result.method("xian demographic-parity 0.1 gold")
    tight = result.method("xian demographic-parity 0 gold")
    base = result.method("base")
    assert tight.facts["objective"] > loose.facts["objective"]
    assert tight.measures["test.demographic_parity"].value < base.measures["test.demographic_parity"].value
    assert "dev.accuracy" not in tight.measures  # it was fitted there


class BrokenOffError(RuntimeError):
    pass


def test_an_interrupted_study_goes_on_where_it_stopped(study, result, tmp_path, monkeypatch):
    done = []
    plain = setting.steer_rows

    def counted(spec, method, *rest):
        if method == "mimic" and len(done) == 3:
            done.append("broken off")
            raise BrokenOffError
        done.append(method)
        return plain(spec, method, *rest)

    monkeypatch.setattr(setting, "steer_rows", counted)
    with pytest.raises(BrokenOffError):
        run_setting(SPEC, study, Stages.of(tmp_path, {}), announce=silent)
    resumed = run_setting(SPEC, study, Stages.of(tmp_path, {}), announce=silent)
    assert done == ["base", "leace", "mean", "broken off", "mimic"]
    assert resumed == result
    assert not list(tmp_path.rglob("*.npy"))  # steered rows are gone


def test_a_damaged_stage_is_computed_again(study, result, tmp_path):
    run_setting(SPEC, study, Stages.of(tmp_path, {}), announce=silent)
    [path] = tmp_path.rglob("mean.safetensors")
    held = bytearray(path.read_bytes())
    held[-3] ^= 0xFF
    path.write_bytes(bytes(held))
    with pytest.warns(CacheWarning, match="computed again"):
        assert run_setting(SPEC, study, Stages.of(tmp_path, {}), announce=silent) == result


def test_another_identity_or_version_has_other_stages(tmp_path, monkeypatch):
    first = Stages.of(tmp_path, {"seed": 0}).folder
    assert Stages.of(tmp_path, {"seed": 1}).folder != first
    monkeypatch.setattr(rs, "__version__", "99")
    assert Stages.of(tmp_path, {"seed": 0}).folder != first


def test_rows_that_cannot_be_studied_are_refused():
    part = Part(np.eye(6), np.array(["a", "b"] * 3), np.array(["f", "m", "x"] * 2))
    with pytest.raises(LabelError, match=r"3 values \(f, m, x\)"):
        StudyRows(part, part, part)
    empty = Part(np.empty((0, 6)), np.array([], dtype=str), np.array([], dtype=str))
    with pytest.raises(DataError, match="'dev' has no rows"):
        StudyRows(part, empty, part)


def test_random_splits_have_the_shares_of_bios():
    names = random_splits(1000, seed=3)
    assert {name: int((names == name).sum()) for name in SPLITS} == {"train": 650, "dev": 100, "test": 250}
    assert (names != random_splits(1000, seed=4)).any()
    assert not (names[:600] == "train").all()


def skewed(n=4000, ratio=0.9, seed=0):
    """Return rows whose task and concept are two directions, and go together at a ratio."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    z = np.where(rng.random(n) < ratio, y, 1 - y)
    X = rng.normal(size=(n, 6))
    X[:, 0] += 1.5 * y
    X[:, 1] += 3.0 * z
    part = Part(X, np.array(["no", "yes"])[y], np.array(["female", "male"])[z])
    return StudyRows(*(Part(part.X[s], part.y[s], part.z[s]) for s in (slice(2000), slice(2000, 3000), slice(3000, n))))


def test_balanced_fitting_does_not_take_the_task_for_the_concept(tmp_path):
    choices = {"methods": ("base", "mean", "mimic"), "train_labels": "gold", "test_labels": "gold", "probe_rows": 0}
    found = {}
    for weights in ("rows", "balanced"):
        spec = replace(SPEC, **choices, fit_weights=weights)
        found[weights] = run_setting(spec, skewed(), Stages.of(tmp_path, {"weights": weights}), announce=silent)
    for method in ("mean", "mimic"):
        plain, balanced = (found[weights].method(method) for weights in ("rows", "balanced"))
        base = found["rows"].method("base").measures["test.tpr_gap_rms"].value
        assert base > 0.3
        # unweighted, the gap of every class changes its sign; balanced, it is within its noise
        assert plain.gaps["yes"] * found["rows"].method("base").gaps["yes"] < 0
        assert balanced.measures["test.tpr_gap_rms"].value < 3 * balanced.measures["test.tpr_gap_noise"].value
        assert balanced.measures["test.accuracy"].value > plain.measures["test.accuracy"].value + 0.1
        assert balanced.supported and balanced.certificate["mean_gap"] < 1e-9


def test_balancing_weights_make_labels_and_concepts_independent():
    y, z = np.array(list("aaaabbbbbbcc")), np.array(list("fffmfmmmmmff"))
    w = balancing_weights(y, z)
    kept = y != "c"  # a label that one concept lacks says nothing about the other
    assert (w[~kept] == 0).all() and w.sum() == pytest.approx(kept.sum())
    for concept in "fm":
        mass = [w[(y == label) & (z == concept)].sum() for label in "ab"]
        assert mass[0] / sum(mass) == pytest.approx(0.4)
