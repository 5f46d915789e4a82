"""Toxicity scorers: frozen functions from texts to scores, identified by name, version and digest."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
