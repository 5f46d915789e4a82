"""Labelled texts and vectors: the embedded corpus, fairness and toxicity data, and tables of your own."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
