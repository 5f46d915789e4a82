"""Choose a steering for a concept at a stated price: search, confirmation, and a lock that reproduces the result."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
