"""Post-processing to parity: the optimum of its program, proved by its offsets, whichever way it is solved."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from repsurgery.errors import DataError, LabelError, ParameterError, ShapeError
from repsurgery.studies.fairness.rivals import ALPHAS, FairPostProcessing, parity_dual
from repsurgery.studies.fairness.rivals.parity import ParityProblem, known_groups
from tests.studies.fairness.parity_problems import (
    DP,
    EO,
    Scored,
    free_error,
    least_error,
    make_scored,
    predicted_gaps,
    rate_weights,
)

SAME = 1e-6
"""Between two programs solved apart; the second one runs at HiGHS's default tolerances of 1e-7."""
PROVED = 1e-9
"""Largest gap of primal and dual that counts as closed."""

both_solvers = pytest.mark.parametrize("solver", ["linear-program", "dual"])
both_criteria = pytest.mark.parametrize("criterion", [DP, EO])


def fitted(data, alpha=0.0, criterion=DP, solver="auto"):
    return FairPostProcessing(alpha=alpha, criterion=criterion, solver=solver).fit(data.scores, data.group)


def lower_bound(data, post, scale=1.0):
    """Return what the offsets, shrunk by ``scale``, prove: the Lagrangian's minimum, written from scratch."""
    n_v = len(data.scores) * rate_weights(data, post.criterion)
    psi = scale * np.array([post.offsets_[a] for a in data.group])
    values = data.scores + psi * (1.0 if post.criterion == DP else data.scores)
    mu = np.zeros((len(post.groups_), data.scores.shape[1]))
    for a, label in enumerate(post.groups_):
        row = np.flatnonzero(data.group == label)[0]
        base = 1.0 if post.criterion == DP else data.scores[row]
        mu[a] = scale * post.offsets_[label] * base / n_v[row]
    # offsets of an undecided group belong to costs moved by the gain
    assert np.abs(mu.sum(axis=0)).max() < PROVED + post.gain_
    return np.mean(1.0 - values.max(axis=1)) - post.alpha / 2 * np.abs(mu).sum()


@both_criteria
@both_solvers
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize(("n", "classes"), [(400, 2), (600, 28)])
def test_the_objective_is_the_optimum(n, classes, alpha, solver, criterion):
    data = make_scored(classes, n=n, classes=classes)
    post = fitted(data, alpha, criterion, solver)
    assert post.solver_ == solver
    assert post.objective_ == pytest.approx(least_error(data, alpha, criterion), abs=SAME)
    assert post.objective_ > free_error(data) + 1e-4 or alpha > 0.001  # parity is not free here


@both_criteria
def test_the_objective_is_the_optimum_on_more_rows(criterion):
    data = make_scored(1, n=2000, classes=28)
    whole, dual = (fitted(data, 0.01, criterion, solver).objective_ for solver in ("linear-program", "dual"))
    assert dual == pytest.approx(whole, abs=PROVED)
    assert whole == pytest.approx(least_error(data, 0.01, criterion), abs=SAME)


@both_criteria
@both_solvers
@pytest.mark.parametrize("alpha", [0.0, 0.03])
def test_the_gap_certifies_the_optimum(alpha, solver, criterion):
    data = make_scored(2, n=500, classes=6)
    post = fitted(data, alpha, criterion, solver)
    assert abs(post.gap_) < PROVED
    assert lower_bound(data, post) == pytest.approx(post.objective_, abs=PROVED + post.gain_)
    assert lower_bound(data, post, scale=0.5) < post.objective_ - 1e-4  # other offsets prove less


@given(seed=st.integers(0, 2**32 - 1), alpha=st.sampled_from(ALPHAS), criterion=st.sampled_from([DP, EO]))
def test_no_multiplier_proves_more_than_the_optimum(seed, alpha, criterion):
    data = make_scored(seed, n=60, classes=3)
    problem = ParityProblem.of(known_groups(*data, 2), alpha=alpha, criterion=criterion)
    u = np.random.default_rng(seed).normal(scale=0.1, size=3)
    assert problem.dual_value(np.array([u, -u])) <= fitted(data, alpha, criterion).objective_ + PROVED


def test_multipliers_that_do_not_cancel_prove_nothing():
    data = make_scored(3, n=60, classes=3)
    problem = ParityProblem.of(known_groups(*data, 2), alpha=0.0, criterion=DP)
    assert problem.dual_value(np.full((2, 3), -1.0)) > fitted(data).objective_


@given(seed=st.integers(0, 2**32 - 1), criterion=st.sampled_from([DP, EO]), classes=st.sampled_from([2, 5]))
def test_both_solvers_agree_on_small_problems(seed, criterion, classes):
    data = make_scored(seed, n=40, classes=classes)
    if len(np.unique(data.group)) < 2:
        return
    whole, dual = (fitted(data, 0.01, criterion, solver).objective_ for solver in ("linear-program", "dual"))
    assert dual == pytest.approx(whole, abs=10 * PROVED)


@both_criteria
@both_solvers
def test_the_objective_falls_as_alpha_grows(solver, criterion):
    data = make_scored(4, n=500, classes=5)
    costs = [fitted(data, alpha, criterion, solver).objective_ for alpha in (*ALPHAS, 1.0)]
    assert all(a >= b - PROVED for a, b in pairwise(costs))
    assert costs[0] > costs[-1] + 1e-3


@both_criteria
@both_solvers
@pytest.mark.parametrize("alpha", [1.0, float("inf")])
def test_a_large_alpha_changes_nothing(alpha, solver, criterion):
    data = make_scored(5, n=500, classes=5)
    best = data.scores.argmax(axis=1)
    post = fitted(data, alpha, criterion, solver)
    assert post.objective_ == pytest.approx(free_error(data), abs=PROVED)
    assert not np.any(list(post.offsets_.values()))
    assert np.array_equal(post.predict(*data), best)
    assert not np.array_equal(fitted(data, 0.0, criterion, solver).predict(*data), best)


@both_criteria
@both_solvers
@pytest.mark.parametrize("alpha", [0.0, 0.02])
def test_predictions_keep_parity_up_to_ties(alpha, solver, criterion):
    data = make_scored(6, n=4000, classes=5)
    # a basic optimum splits at most one row per parity constraint, K of them per group
    split = 5 * rate_weights(data, criterion).max(axis=0)
    chosen = fitted(data, alpha, criterion, solver).predict(*data)
    assert np.all(predicted_gaps(data, chosen, criterion) <= alpha + split)
    assert np.any(predicted_gaps(data, data.scores.argmax(axis=1), criterion) > alpha + 2 * split)


def test_one_criterion_does_not_give_the_other():
    data = make_scored(6, n=4000, classes=5)
    even, fair = fitted(data, 0.0, DP).predict(*data), fitted(data, 0.0, EO).predict(*data)
    assert predicted_gaps(data, even, EO).max() > 5 * predicted_gaps(data, fair, EO).max()
    assert predicted_gaps(data, fair, DP).max() > 5 * predicted_gaps(data, even, DP).max()


@both_solvers
def test_a_group_better_in_every_rate_comes_down_by_the_fewest_changes(solver):
    data = make_scored(6, n=4000, classes=5)
    post = fitted(data, 0.0, EO, solver)
    assert post.gain_ > 0
    assert np.abs(1.0 + post.offsets_[1]).max() < 1e-3
    chosen, best = post.predict(*data), data.scores.argmax(axis=1)
    changed = np.mean((chosen != best)[data.group == 1])
    assert 0 < changed < 0.3
    assert fitted(data, 0.02, EO, solver).gain_ == 0.0


def test_an_undecided_group_of_many_rows_is_decided_on_some():
    data = make_scored(18, n=8000, classes=3)
    blurred = np.where(data.group[:, None] == 0, 0.5 * data.scores + 0.5 / 3, data.scores)
    data = Scored(blurred, data.group)
    post = fitted(data, 0.0, EO, "dual")
    assert post.gain_ > 0
    # rates of 2,500 rows per group are known to 3 standard errors of at most 0.5 / 50, twice
    assert predicted_gaps(data, post.predict(*data), EO).max() < 0.06
    assert predicted_gaps(data, data.scores.argmax(axis=1), EO).max() > 0.12


@both_solvers
def test_the_order_of_rows_does_not_matter(solver):
    data = make_scored(7, n=400, classes=5)
    order = np.random.default_rng(0).permutation(400)
    moved = Scored(data.scores[order], data.group[order])
    assert fitted(moved, 0.01, solver=solver).objective_ == pytest.approx(
        fitted(data, 0.01, solver=solver).objective_, abs=PROVED
    )


@both_criteria
def test_three_groups_are_held_to_parity_in_pairs(criterion):
    data = make_scored(8, n=400, classes=4, groups=3)
    post = fitted(data, 0.02, criterion)
    assert post.solver_ == "linear-program"
    assert post.objective_ == pytest.approx(least_error(data, 0.02, criterion), abs=SAME)
    assert lower_bound(data, post) == pytest.approx(post.objective_, abs=PROVED + post.gain_)
    merged = Scored(data.scores, np.minimum(data.group, 1))
    assert post.objective_ > fitted(merged, 0.02, criterion).objective_ + 1e-4


@both_solvers
def test_a_class_without_mass_in_a_group_is_free_there(solver):
    data = make_scored(9, n=300, classes=4)
    scores = data.scores.copy()
    scores[data.group == 1, 2] = 0.0
    data = Scored(scores / scores.sum(axis=1, keepdims=True), data.group)
    post = fitted(data, 0.0, EO, solver)
    assert post.objective_ == pytest.approx(least_error(data, 0.0, EO), abs=SAME)
    assert post.offsets_[0][2] == post.offsets_[1][2] == 0.0
    assert post.offsets_[0].any()


@both_criteria
@both_solvers
def test_equal_scores_leave_the_objective_exact(solver, criterion):
    few = make_scored(10, n=7, classes=3).scores
    rng = np.random.default_rng(10)
    data = Scored(few[rng.integers(7, size=400)], rng.integers(2, size=400))
    assert fitted(data, 0.0, criterion, solver).objective_ == pytest.approx(least_error(data, 0.0, criterion), abs=SAME)


def test_a_dual_out_of_reach_is_solved_whole(monkeypatch):
    data = make_scored(11, n=200, classes=3)
    expected = fitted(data, solver="linear-program").objective_
    monkeypatch.setattr(parity_dual, "REACH", 10 * parity_dual.LARGEST_REACH)
    assert fitted(data, solver="dual").objective_ == pytest.approx(expected, abs=PROVED)


@both_criteria
def test_the_dual_recovers_from_a_poor_start(monkeypatch, criterion):
    data = make_scored(12, n=1500, classes=6)
    expected = fitted(data, 0.0, criterion, "linear-program").objective_
    monkeypatch.setattr(parity_dual, "TEMPERATURES", ())
    assert fitted(data, 0.0, criterion, "dual").objective_ == pytest.approx(expected, abs=PROVED)


@pytest.mark.parametrize(("n", "solver"), [(5000, "linear-program"), (5001, "dual")])
def test_auto_goes_by_the_number_of_rows(n, solver):
    assert fitted(make_scored(13, n=n, classes=2), 0.1).solver_ == solver


def test_names_of_classes_and_groups_are_the_callers():
    data = make_scored(14, n=200, classes=3)
    plain = fitted(data).predict(*data)
    group = np.where(data.group == 1, "women", "men")
    post = FairPostProcessing(alpha=0.0).fit(data.scores, group, classes=["nurse", "judge", "poet"])
    assert post.groups_ == ["men", "women"]
    assert set(post.offsets_) == {"men", "women"}
    assert post.predict(data.scores, group).tolist() == np.array(["nurse", "judge", "poet"])[plain].tolist()
    assert post.predict(data.scores[:1], ["women"]).shape == (1,)


def test_the_group_given_decides_the_answer():
    data = make_scored(15, n=300, classes=3)
    post = fitted(data)
    assert not np.array_equal(post.predict(*data), post.predict(data.scores, 1 - data.group))


def test_ties_go_to_the_first_class():
    data = make_scored(16, n=100, classes=2)
    assert fitted(data, 1.0).predict([[0.5, 0.5]], [0]).tolist() == [0]


def test_input_is_left_alone_and_torch_like_floats_pass():
    data = make_scored(17, n=100, classes=3)
    kept = data.scores.copy()
    exact = fitted(data, 0.01).objective_
    assert np.array_equal(data.scores, kept)
    single = Scored(data.scores.astype(np.float32), data.group)
    assert fitted(single, 0.01).objective_ == pytest.approx(exact, abs=1e-6)


def test_it_clones_and_knows_when_it_is_unfitted():
    post = clone(FairPostProcessing(alpha=0.05, criterion=EO, solver="dual"))
    assert post.get_params() == {"alpha": 0.05, "criterion": EO, "solver": "dual"}
    with pytest.raises(NotFittedError):
        post.predict([[0.5, 0.5]], [0])


GOOD = np.array([[0.5, 0.5], [0.2, 0.8], [0.9, 0.1]])


@pytest.mark.parametrize(
    ("params", "scores", "group", "error", "words"),
    [
        ({"alpha": -0.1}, GOOD, [0, 1, 1], ParameterError, "at least 0"),
        ({"alpha": float("nan")}, GOOD, [0, 1, 1], ParameterError, "at least 0"),
        ({"alpha": True}, GOOD, [0, 1, 1], ParameterError, "at least 0"),
        ({"alpha": "0.1"}, GOOD, [0, 1, 1], ParameterError, "at least 0"),
        ({"criterion": "parity"}, GOOD, [0, 1, 1], ParameterError, "equal-opportunity"),
        ({"solver": "cbc"}, GOOD, [0, 1, 1], ParameterError, "linear-program"),
        ({"solver": "dual"}, GOOD, [0, 1, 2], ParameterError, "auto"),
        ({}, GOOD, [1, 1, 1], LabelError, "two or more"),
        ({}, GOOD, [0, 1], LabelError, "one label per row"),
        ({}, GOOD, [0, 1, None], LabelError, "every row a label"),
        ({}, GOOD - [[0, 0], [0, 0], [1, -1]], [0, 1, 1], DataError, "row 2: smallest -0.1"),
        ({}, GOOD * [[1], [2], [1]], [0, 1, 1], DataError, "row 1: .* sum 2"),
        ({}, np.where(GOOD == 0.8, np.nan, GOOD), [0, 1, 1], DataError, "row 1, column 1"),
        ({}, GOOD[:, :1] * 0 + 1, [0, 1, 1], ShapeError, "two classes or more"),
        ({}, GOOD[0], [0, 1], ShapeError, "2D"),
        ({}, [["a", "b"]], [0], DataError, "real numbers"),
    ],
)
def test_bad_input_is_named_before_anything_is_solved(params, scores, group, error, words):
    post = FairPostProcessing(**params)
    with pytest.raises(error, match=words):
        post.fit(scores, group)
    assert not hasattr(post, "objective_")


@pytest.mark.parametrize("classes", [["a"], ["a", "a"], [["a", "b"]], "ab"])
def test_classes_are_one_name_per_column(classes):
    with pytest.raises(LabelError, match="2 different names"):
        FairPostProcessing().fit(GOOD, [0, 1, 1], classes=classes)


@pytest.mark.parametrize(
    ("scores", "group", "error", "words"),
    [
        (GOOD, [0, 1, 2], LabelError, r"groups \[2\]; it was fitted on \[0, 1\]"),
        (GOOD, [0, 1], LabelError, "one label per row"),
        (np.full((1, 3), 1 / 3), [0], ShapeError, "3 classes; it was fitted on 2"),
        (2 * GOOD, [0, 1, 1], DataError, "row 0"),
    ],
)
def test_bad_input_to_predict_is_named(scores, group, error, words):
    post = FairPostProcessing().fit(GOOD, [0, 1, 1])
    with pytest.raises(error, match=words):
        post.predict(scores, group)
