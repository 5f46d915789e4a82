"""Run compiled code eagerly while hooks must be seen.

Dynamo does not guard on hooks: a graph compiled before a hook was set never calls it, and one compiled while it stood
keeps it for ever. PyTorch's stance switches between the graphs and the Python code behind them, for the whole process.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["eagerly"]

_LOCK = threading.Lock()
_OPEN: list[Any] = []
_STANCE: list[Any] = []


@contextmanager
def eagerly() -> Iterator[None]:
    """Let every compiled callable run its original Python code until the last such block is left, in any thread."""
    me = object()
    with _LOCK:
        if not _OPEN:
            _STANCE.append(torch.compiler.set_stance("force_eager"))
        _OPEN.append(me)
    try:
        yield
    finally:
        with _LOCK:
            _OPEN.remove(me)
            if not _OPEN:
                _STANCE.pop().__exit__(None, None, None)
