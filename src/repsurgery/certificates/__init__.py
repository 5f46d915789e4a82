"""Certificates: issue them from moments, measure them on rows, and verify their claims."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
