"""The price of a steering in nats: Fisher matrices, and the divergence that they predict."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
