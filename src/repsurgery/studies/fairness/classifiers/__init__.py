"""Classifiers of representations, for many rows and classes."""

from repsurgery.studies.fairness.classifiers.concept import concept_classifier
from repsurgery.studies.fairness.classifiers.logistic import SoftmaxRegression
from repsurgery.studies.fairness.classifiers.released import released_logistic_regression

__all__ = ["SoftmaxRegression", "concept_classifier", "released_logistic_regression"]
