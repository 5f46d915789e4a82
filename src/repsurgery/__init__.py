"""Steer and erase concepts in representations by optimal affine maps with measured, verifiable certificates."""

import lazy_loader

__version__ = "0.1.0"

_attached, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """Return a public name; every estimator in ``repsurgery.steering`` is one, also without a line in the stub."""
    try:
        return _attached(name)
    except AttributeError:
        if not name[:1].isupper():
            raise
        from repsurgery.steering.base import METHODS

        for estimator in METHODS.own().values():
            if estimator.__name__ == name:
                return estimator
        raise
