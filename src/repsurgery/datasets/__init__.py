"""Texts and vectors with labels and concepts: the embedded corpus, fairness and toxicity data, your own tables."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
