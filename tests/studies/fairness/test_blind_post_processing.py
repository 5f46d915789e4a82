"""Post-processing without groups: the optimum for joint probabilities, and that of known groups where they are sure."""

from itertools import pairwise

import numpy as np
import pytest

from repsurgery.errors import DataError, LabelError, ShapeError
from repsurgery.studies.fairness.rivals import ALPHAS, FairPostProcessing
from tests.studies.fairness.parity_problems import DP, EO, joint_rates, least_blind_error, make_joint, make_scored

SAME = 1e-6
"""Between two programs solved apart; the second one runs at HiGHS's default tolerances of 1e-7."""
PROVED = 1e-9

both_solvers = pytest.mark.parametrize("solver", ["linear-program", "dual"])
both_criteria = pytest.mark.parametrize("criterion", [DP, EO])


def fitted(joint, alpha=0.0, criterion=EO, solver="auto"):
    return FairPostProcessing(alpha=alpha, criterion=criterion, solver=solver).fit(joint)


def free_error(joint):
    return np.mean(1.0 - joint.sum(axis=1).max(axis=1))


def gaps(joint, chosen, criterion):
    """Return (K,) the difference of the groups' expected rates when row i gets class ``chosen[i]``."""
    taken = np.eye(joint.shape[2])[chosen]
    return np.abs(np.subtract(*(joint_rates(joint, criterion) * taken).sum(axis=1)))


@both_criteria
@both_solvers
@pytest.mark.parametrize("alpha", [0.0, 0.01, 0.1])
def test_without_groups_the_objective_is_the_optimum(alpha, solver, criterion):
    joint = make_joint(1, n=400, classes=6)
    post = fitted(joint, alpha, criterion, solver)
    assert post.solver_ == solver and post.blind_
    assert post.objective_ == pytest.approx(least_blind_error(joint, alpha, criterion), abs=SAME)
    assert abs(post.gap_) < PROVED
    assert post.objective_ > free_error(joint) + 1e-4 or alpha > 0.01  # parity is not free here


@both_solvers
def test_the_objective_falls_from_parity_to_the_free_error(solver):
    joint = make_joint(2, n=400, classes=5)
    costs = [fitted(joint, alpha, EO, solver).objective_ for alpha in (*ALPHAS, 1.0)]
    assert all(a >= b - PROVED for a, b in pairwise(costs))
    assert costs[0] > costs[-1] + 1e-3
    assert costs[-1] == pytest.approx(free_error(joint), abs=PROVED)
    loose = fitted(joint, 1.0, EO, solver)
    assert np.array_equal(loose.predict(joint), joint.sum(axis=1).argmax(axis=1))


@both_criteria
def test_certain_groups_need_not_be_given(criterion):
    data = make_scored(3, n=500, classes=4)
    certain = np.where(data.group[:, None, None] == np.arange(2)[:, None], data.scores[:, None], 0.0)
    aware = FairPostProcessing(alpha=0.02, criterion=criterion).fit(*data)
    blind = fitted(certain, 0.02, criterion)
    assert blind.objective_ == aware.objective_
    assert np.array_equal(blind.predict(certain), aware.predict(*data))
    unsure = 0.8 * certain + 0.2 * certain[:, ::-1]
    assert fitted(unsure, 0.02, criterion).objective_ != pytest.approx(aware.objective_, abs=1e-4)


@both_criteria
@both_solvers
def test_predictions_keep_expected_parity_up_to_ties(solver, criterion):
    joint = make_joint(4, n=3000, classes=5)
    # a basic optimum splits at most one row per parity constraint, K of them
    split = 5 * joint_rates(joint, criterion).max(axis=(0, 1))
    post = fitted(joint, 0.01, criterion, solver)
    assert post.gain_ == 0
    assert np.all(gaps(joint, post.predict(joint), criterion) <= 0.01 + split)
    assert np.any(gaps(joint, joint.sum(axis=1).argmax(axis=1), criterion) > 0.01 + 2 * split)


def test_what_joint_probabilities_cannot_be_is_refused():
    joint, data = make_joint(5, n=50), make_scored(5, n=50)
    with pytest.raises(ShapeError, match=r"\(n, groups, K\)\. Pass them, or the groups"):
        FairPostProcessing().fit(data.scores)
    with pytest.raises(DataError, match="not probabilities"):
        fitted(2 * joint)
    with pytest.raises(LabelError, match="one group only"):
        fitted(data.scores[:, None])
    with pytest.raises(LabelError, match="Pass groups to both, or joint probabilities to both"):
        fitted(joint).predict(*data)
    with pytest.raises(LabelError, match="got no groups, and fit some"):
        FairPostProcessing().fit(*data).predict(joint)
