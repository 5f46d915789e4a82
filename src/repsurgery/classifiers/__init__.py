"""Classifiers over representations, made for many rows and classes."""

from repsurgery.classifiers.concept import concept_classifier
from repsurgery.classifiers.logistic import SoftmaxRegression
from repsurgery.classifiers.released import released_logistic_regression

__all__ = ["SoftmaxRegression", "concept_classifier", "released_logistic_regression"]
