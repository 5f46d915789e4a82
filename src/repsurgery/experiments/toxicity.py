"""The toxicity study: an older import path of `repsurgery.studies.toxicity`."""

import lazy_loader

from repsurgery.studies import toxicity

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(toxicity.__name__, toxicity.__file__)
