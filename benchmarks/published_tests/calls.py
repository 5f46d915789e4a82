"""A plugin of pytest: put our functions in the place of the peer's, and record which test calls them."""

import functools
import importlib
import sys
from typing import Any

import numpy as np
import pytest
import torch

_called: set[str] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--own", action="store_true", help="leave the peer's own functions where they are")


def pytest_configure(config: pytest.Config) -> None:
    adapters = [] if config.getoption("own") else config.pluginmanager.get_plugins()
    for adapter in adapters:
        for module, ours in getattr(adapter, "STAND_INS", ()):
            _stand_in(module, ours)


def _stand_in(module: str, ours: Any) -> None:
    """Put ``ours`` wherever the peer has imported its own object of that name, which ``module`` defines."""
    name = ours.__name__
    original = getattr(importlib.import_module(module), name)
    if isinstance(ours, type):
        ours.__init__ = _noted(name, ours.__init__)
    else:
        ours = _noted(name, ours)
    package = module.partition(".")[0]
    for path, loaded in list(sys.modules.items()):
        if path.partition(".")[0] == package and vars(loaded).get(name) is original:
            setattr(loaded, name, ours)


def _noted(name: str, function: Any) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        _called.add(name)
        return function(*args, **named)

    return call


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """Seed what the test draws without a seed of its own, and report the names that it calls."""
    np.random.seed(0)  # noqa: NPY002 - the generator that the peers' tests draw from
    torch.manual_seed(0)
    _called.clear()
    yield
    item.user_properties.append(("called", " ".join(sorted(_called))))
