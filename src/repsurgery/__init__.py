"""Affine representation surgery: steer and erase concepts by optimal affine maps that carry their own proof."""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
