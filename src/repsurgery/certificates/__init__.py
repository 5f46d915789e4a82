"""Certificates: issue them from moments, re-issue them on rows, hold them to their claims."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
