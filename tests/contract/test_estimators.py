"""What every estimator must pass: scikit-learn's battery, whole, without an expected failure."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import repsurgery as rs
from tests.estimators import ALL

ESTIMATORS = [*(estimator() for estimator in ALL), rs.MiMiC(shrinkage="oas", gate="lda"), rs.MiMiC(shrinkage="pooled")]


@pytest.mark.filterwarnings("ignore::repsurgery.errors.SurgeryWarning")  # the checks fit on a handful of rows
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
