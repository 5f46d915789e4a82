"""Classifiers over representations; the import path of `repsurgery.studies.fairness.classifiers` that users know."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    "repsurgery.studies.fairness.classifiers",
    submod_attrs={
        "concept": ["concept_classifier"],
        "logistic": ["SoftmaxRegression"],
        "released": ["released_logistic_regression"],
    },
)
