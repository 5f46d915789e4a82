"""The rivals of the fairness study: an older import path of `repsurgery.studies.fairness.rivals`."""

import lazy_loader

from repsurgery.studies.fairness import rivals

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(rivals.__name__, rivals.__file__)
