"""The protocol on rows of a known law: claims hold, interrupted work goes on, damaged work is done again."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import repsurgery as rs
from repsurgery import metrics
from repsurgery.datasets import make_bios
from repsurgery.errors import CacheWarning, DataError, LabelError
from repsurgery.studies.common.stages import Stages
from repsurgery.studies.fairness import make_spec, setting
from repsurgery.studies.fairness.classification import concept_gate
from repsurgery.studies.fairness.classifiers import SoftmaxRegression
from repsurgery.studies.fairness.methods import balancing_weights
from repsurgery.studies.fairness.rivals import FairPostProcessing
from repsurgery.studies.fairness.rows import SPLITS, Part, StudyRows, random_splits
from repsurgery.studies.fairness.setting import run_setting

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
        assert balanced.verdict in ("supported", "cannot tell") and balanced.certificate["mean_gap"] < 1e-9


def test_balancing_weights_make_labels_and_concepts_independent():
    y, z = np.array(list("aaaabbbbbbcc")), np.array(list("fffmfmmmmmff"))
    w = balancing_weights(y, z)
    kept = y != "c"  # a label that one concept lacks says nothing about the other
    assert (w[~kept] == 0).all() and w.sum() == pytest.approx(kept.sum())
    for concept in "fm":
        mass = [w[(y == label) & (z == concept)].sum() for label in "ab"]
        assert mass[0] / sum(mass) == pytest.approx(0.4)


def test_chance_is_that_of_the_rows_that_are_asked(tmp_path):
    study = rows()
    few = np.flatnonzero(study.dev.z == "female")[:20]
    kept = np.concatenate([few, np.flatnonzero(study.dev.z == "male")])
    lopsided = replace(study, dev=Part(study.dev.X[kept], study.dev.y[kept], study.dev.z[kept]))
    spec = replace(SPEC, methods=("base",), cosine_rows=0, probe_rows=0)
    found = run_setting(spec, lopsided, Stages.of(tmp_path, {}), announce=silent)
    assert found.chance == pytest.approx(metrics.chance_level(lopsided.dev.z)) and found.chance > 0.6


def test_post_processing_is_fitted_on_dev_and_given_the_groups_it_names(study, tmp_path):
    # a gate that errs, so that gold and predicted groups differ
    spec = replace(SPEC, methods=("base", "xian"), concept_classifier="linear", early_stopping=False, alphas=(0.0,))
    found = run_setting(spec, study, Stages.of(tmp_path, {}), announce=silent)
    gate, _ = concept_gate(spec, study.train, Stages.of(tmp_path, {}))
    head = SoftmaxRegression().fit(study.train.X, study.train.y)
    dev, test = (head.predict_proba(part.X) for part in (study.dev, study.test))
    for criterion in ("demographic-parity", "equal-opportunity"):
        for group in ("gold", "predicted"):
            z_dev, z_test = (p.z if group == "gold" else gate.predict(p.X) for p in (study.dev, study.test))
            post = FairPostProcessing(alpha=0.0, criterion=criterion).fit(dev, z_dev, classes=head.classes_)
            result = found.method(f"xian {criterion} 0 {group}")
            assert result.facts["objective"] == pytest.approx(post.objective_, abs=1e-5)
            accuracy = np.mean(post.predict(test, z_test) == study.test.y)
            assert result.measures["test.accuracy"].value == pytest.approx(accuracy, abs=0.01)
    objectives = [
        found.method(f"xian demographic-parity 0 {group}").facts["objective"] for group in ("gold", "predicted")
    ]
    assert abs(objectives[0] - objectives[1]) > 1e-4


def test_alphas_that_differ_in_the_eighth_digit_are_two_rows(study, tmp_path):
    choices = {"methods": ("base", "xian"), "criteria": ("demographic-parity",), "post_groups": ("gold",)}
    spec = replace(SPEC, **choices, alphas=(0.0123456, 0.01234561))
    found = run_setting(spec, study, Stages.of(tmp_path, {}), announce=silent)
    assert len([m for m in found.methods if m.method.startswith("xian")]) == 2


def test_probes_are_judged_on_rows_they_never_saw(tmp_path):
    # with more dimensions than rows a probe knows its own rows by heart, and nothing of others
    rng = np.random.default_rng(0)
    parts = [
        Part(rng.normal(size=(n, 200)), np.repeat(["a", "b"], n // 2), rng.permutation(["f", "m"] * (n // 2)))
        for n in (100, 40, 400)
    ]
    spec = make_spec("bios", source="f", target="m", methods=["base"], neighbour_counts=[], cosine_rows=0, resamples=5)
    found = run_setting(spec, StudyRows(*parts), Stages.of(tmp_path, {}), announce=silent)
    assert found.methods[0].measures["probe.linear"].value < 0.7


def test_the_first_rows_are_looked_at_where_the_study_says_so(study, result, tmp_path):
    spec = replace(SPEC, methods=("base",), neighbour_rows=100, cosine_sample="first", cosine_rows=20, probe_rows=0)
    base = run_setting(spec, study, Stages.of(tmp_path, {}), announce=silent).method("base")
    dev = study.dev
    expected = metrics.neighbour_bias(dev.X[:100], dev.z[:100], k=[1, 8], queries=100)
    assert {int(k): e.value for k, e in base.neighbours.items()} == pytest.approx(expected)
    first = np.concatenate([np.flatnonzero(dev.z == c)[:20] for c in ("female", "male")])
    U = dev.X[first] / np.linalg.norm(dev.X[first], axis=1, keepdims=True)
    np.testing.assert_allclose(base.cosine.matrix(), U @ U.T, atol=0.5 / 127 + 1e-5)


def test_rows_left_by_a_killed_run_are_cleared_away(study, tmp_path):
    stages = Stages.of(tmp_path, {})
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    (stages.folder / f"rows-{killed.pid}-abc").mkdir()
    (stages.folder / f"rows-{os.getpid()}-abc").mkdir()  # of a run that still goes on
    with stages.scratch() as folder:
        assert folder.is_dir()
    assert [path.name for path in stages.folder.iterdir()] == [f"rows-{os.getpid()}-abc"]
