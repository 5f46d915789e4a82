"""Classifiers of representations: an older import path of `repsurgery.studies.fairness.classifiers`."""

import lazy_loader

from repsurgery.studies.fairness import classifiers

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(classifiers.__name__, classifiers.__file__)
