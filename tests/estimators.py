"""Every estimator, for tests that all of them must pass."""

from repsurgery.steering.base import METHODS

ALL = list(METHODS.own().values())
EQUAL_MEANS = [estimator for estimator in ALL if "means" in estimator.claims]
