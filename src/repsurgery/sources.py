"""Shards of labelled vectors: an older import path of `repsurgery.scale`, with all its names."""

import lazy_loader

from repsurgery import scale

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(scale.__name__, scale.__file__)
