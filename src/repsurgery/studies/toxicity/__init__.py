"""The toxicity study: steer a model away from toxic text at every step, and measure the effects."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
