"""Post-processing in a study: blind rows, folds and calibration do what their options say; strengths go part way."""

from dataclasses import replace

import numpy as np
import pytest

from repsurgery.studies.common.stages import Stages
from repsurgery.studies.fairness.classification import concept_gate
from repsurgery.studies.fairness.classifiers import SoftmaxRegression
from repsurgery.studies.fairness.methods import steer_rows
from repsurgery.studies.fairness.post_scores import class_scores, fitted_part, group_shares, with_groups
from repsurgery.studies.fairness.rivals import FairPostProcessing
from repsurgery.studies.fairness.rivals.calibration import VectorScaling
from repsurgery.studies.fairness.setting import run_setting
from tests.studies.fairness.test_setting import SPEC, rows, silent

EO = "equal-opportunity"
POST = replace(
    SPEC,
    methods=("base", "xian"),
    criteria=(EO,),
    alphas=(0.0, 0.05, 1.0),
    post_groups=("gold", "blind"),
    neighbour_counts=(),
    cosine_rows=0,
    probe_rows=0,
    resamples=10,
)


@pytest.fixture(scope="module")
def study():
    return rows()


@pytest.fixture(scope="module")
def head(study):
    return SoftmaxRegression().fit(study.train.X, study.train.y)


@pytest.fixture(scope="module")
def base(study, tmp_path_factory):
    stages = Stages.of(tmp_path_factory.mktemp("base"), {})
    run_setting(replace(POST, methods=("base",)), study, stages, announce=silent)
    return stages.get("base", lambda: pytest.fail("the base is not stored"))


def test_blind_rows_need_no_group_and_end_at_the_base(study, tmp_path):
    found = run_setting(POST, study, Stages.of(tmp_path, {}), announce=silent)
    base, loose, tight = (found.method(name) for name in ("base", f"xian {EO} 1 blind", f"xian {EO} 0 blind"))
    assert loose.measures["test.accuracy"] == base.measures["test.accuracy"]
    assert loose.gaps == base.gaps
    assert tight.facts["group"] == "blind"
    assert (
        tight.facts["objective"] > found.method(f"xian {EO} 0.05 blind").facts["objective"] > loose.facts["objective"]
    )
    assert tight.measures["test.tpr_gap_rms"].value < base.measures["test.tpr_gap_rms"].value - 0.02


def test_groups_given_labels_are_those_of_a_regression_on_both(study, base, head):
    classes = np.array(base.header["classes"])
    shares = group_shares(POST, study, classes).arrays
    assert set(shares) == {"dev", "test"}
    X = np.hstack([study.train.X, study.train.y[:, None] == classes])
    model = SoftmaxRegression().fit(X, study.train.z)
    for k, label in enumerate(classes):
        told = np.hstack([study.test.X, np.full((len(study.test), 1), label) == classes])
        assert shares["test"][:, k] == pytest.approx(model.predict_proba(told)[:, 1], abs=1e-4)
    # labels tell something about the group beyond the representation
    assert np.ptp(shares["test"], axis=1).max() > 0.05
    joint = with_groups(base.arrays["test.scores"], shares["test"])
    assert joint.sum(axis=1) == pytest.approx(head.predict_proba(study.test.X), abs=1e-6)
    assert (joint >= 0).all()


def test_training_rows_are_scored_by_classifiers_that_did_not_see_them(study, base, head):
    everything = replace(POST, post_rows="all")
    scores = class_scores(everything, study, base).arrays
    own = head.predict_proba(study.train.X)
    fold = np.sort(np.random.default_rng(POST.seed).permutation(len(study.train))[::5])
    rest = np.setdiff1d(np.arange(len(study.train)), fold)
    apart = SoftmaxRegression().fit(study.train.X[rest], study.train.y[rest])
    assert scores["train"][fold] == pytest.approx(apart.predict_proba(study.train.X[fold]), abs=1e-4)
    hits = np.searchsorted(head.classes_, study.train.y)
    loss = [-np.log(p[np.arange(len(hits)), hits]).mean() for p in (scores["train"], own)]
    assert loss[0] > loss[1]
    labels = {name: part.y for name, part in study.parts.items()}
    assert fitted_part(everything, labels).tolist() == [*study.train.y, *study.dev.y]
    assert fitted_part(POST, labels).tolist() == study.dev.y.tolist()


def test_a_class_that_a_fold_lacks_has_no_score_there(study, base):
    y = study.train.y.copy()
    alone = np.flatnonzero(y == "0")
    y[alone[1:]] = "1"  # one row of class 0, so the classifier of its fold knows three classes
    few = replace(study, train=replace(study.train, y=y))
    scores = class_scores(replace(POST, post_rows="all"), few, base).arrays["train"]
    assert scores[alone[0], 0] == 0
    assert scores.sum(axis=1) == pytest.approx(1.0, abs=1e-5)


def test_calibration_is_by_group_and_before_the_program(study, head, tmp_path):
    spec = replace(POST, post_calibration="vector-scaling", alphas=(0.05,), post_groups=("gold",))
    found = run_setting(spec, study, Stages.of(tmp_path, {}), announce=silent).method(f"xian {EO} 0.05 gold")
    dev, test = (head.predict_proba(part.X) for part in (study.dev, study.test))
    codes = np.searchsorted(head.classes_, study.dev.y)
    for concept in ("female", "male"):
        here, there = study.dev.z == concept, study.test.z == concept
        scaling = VectorScaling.fit(dev[here], codes[here])
        dev[here], test[there] = scaling(dev[here]), scaling(test[there])
    post = FairPostProcessing(alpha=0.05, criterion=EO).fit(dev, study.dev.z, classes=head.classes_)
    assert found.facts["objective"] == pytest.approx(post.objective_, abs=1e-5)
    accuracy = np.mean(post.predict(test, study.test.z) == study.test.y)
    assert found.measures["test.accuracy"].value == pytest.approx(accuracy, abs=0.005)
    plain = run_setting(replace(spec, post_calibration="none"), study, Stages.of(tmp_path, {}), announce=silent)
    assert abs(plain.method(f"xian {EO} 0.05 gold").facts["objective"] - post.objective_) > 1e-3


def test_all_rows_and_calibration_are_stages_of_their_own(study, tmp_path):
    # one folder: a stage of one option is never taken for that of another
    spec = replace(POST, alphas=(0.05,))
    found = {}
    for choice in ({}, {"post_rows": "all"}, {"post_calibration": "vector-scaling"}):
        result = run_setting(replace(spec, **choice), study, Stages.of(tmp_path, {}), announce=silent)
        found[tuple(choice)] = [m.facts["objective"] for m in result.methods if m.method.startswith("xian")]
    assert len({tuple(objectives) for objectives in found.values()}) == 3


def test_a_strength_goes_part_of_the_way_and_claims_nothing(study, tmp_path):
    spec = replace(SPEC, methods=("base", "mimic", "mimic strength=0.25"))
    gate, _ = concept_gate(spec, study.train, Stages.of(tmp_path, {}))
    concepts = {name: gate.predict(part.X) for name, part in study.parts.items()}
    whole, part = ((tmp_path / name) for name in ("whole", "part"))
    whole.mkdir(), part.mkdir()
    full = steer_rows(spec, "mimic", study, gate, concepts, whole)
    some = steer_rows(spec, "mimic strength=0.25", study, gate, concepts, part)
    expected = 0.75 * study.test.X + 0.25 * full.X["test"]
    assert some.X["test"] == pytest.approx(expected, abs=1e-4)
    assert not np.allclose(some.X["test"], full.X["test"], atol=0.1)
    assert some.certificate is None and some.verdict is None and full.certificate is not None
