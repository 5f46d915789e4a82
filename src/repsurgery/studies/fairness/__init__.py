"""Fairness in classification: the paper's two studies, and studies of other tables with a task and a concept."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
