"""Measures: pure functions from scores, texts, predictions and representations to numbers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
