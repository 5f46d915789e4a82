"""Hooks at a site: they reach the hidden state in the input or output of a module, also of a compiled one."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from repsurgery.errors import SiteError
from repsurgery.lm.sites.names import Site
from repsurgery.lm.steer.threads import HOOKS_LOCK, Owner

__all__ = ["Visit", "attach", "eagerly"]

Visit = Callable[[torch.Tensor], torch.Tensor | None]
"""Takes the state at a site, (batch, length, d) or (rows, d); returns the state to use instead, or None to keep it."""

_LOCK = threading.Lock()
_OPEN: list[Any] = []
_STANCE: list[Any] = []


def attach(site: Site, visit: Visit, *, holds: Callable[[], bool] | None = None) -> Any:
    """Call ``visit`` on every state that passes ``site``; return the handle whose ``remove`` ends that.

    ``holds`` returns whether the hook applies to the code that runs it; by default it applies only to the thread that
    attached it.
    """
    applies = Owner().here if holds is None else holds
    with HOOKS_LOCK:
        if site.side == "input":
            return site.module.register_forward_pre_hook(_on_input(site, visit, applies), with_kwargs=True)
        return site.module.register_forward_hook(_on_output(site, visit, applies))


@contextmanager
def eagerly() -> Iterator[None]:
    """Run the original Python code of every compiled callable until the last such block ends, in any thread.

    Dynamo does not guard on hooks: a graph compiled before a hook was set never calls it, and a graph compiled while
    it was set keeps it for ever. PyTorch's stance chooses between graphs and Python code for the whole process.
    """
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


def _on_output(site: Site, visit: Visit, applies: Callable[[], bool]) -> Callable[[nn.Module, Any, Any], Any]:
    def hook(module: nn.Module, args: Any, output: Any) -> Any:
        # a graph traced by Dynamo would keep this block's work for ever; Dynamo's other flag is shared by all threads
        if torch.compiler.is_dynamo_compiling() or not applies():
            return None
        new = visit(_state_of(output, site))
        return None if new is None else _replaced(output, new)

    return hook


def _on_input(site: Site, visit: Visit, applies: Callable[[], bool]) -> Callable[..., Any]:
    # PyTorch looks up how to call a hook after it has looked up the hook, so a hook that another thread sets or removes
    # at that moment is called without keywords; it never applies to the thread that calls it
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        if torch.compiler.is_dynamo_compiling() or not applies() or kwargs is None:
            return None
        new = visit(_state_of(args if args else kwargs.get("hidden_states"), site))
        if new is None:
            return None
        return ((new, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": new})

    return hook


def _state_of(value: Any, site: Site) -> torch.Tensor:
    # blocks of transformers 5 return the state itself; older ones and attention modules return a tuple that starts so
    state = value
    if hasattr(value, "last_hidden_state"):
        state = value.last_hidden_state
    elif isinstance(value, (tuple, list)) and value:
        state = value[0]
    if not isinstance(state, torch.Tensor) or state.ndim < 2 or not state.is_floating_point():
        raise SiteError(
            f"At site {site.name!r} ({site.path}) the model has a {type(state).__name__}, not a hidden state. "
            "Name a module that returns (batch, length, d) or a tuple that starts with it."
        )
    return state


def _replaced(value: Any, state: torch.Tensor) -> Any:
    if hasattr(value, "last_hidden_state"):
        return type(value)(**{**dict(value), "last_hidden_state": state})
    if isinstance(value, tuple):
        return (state, *value[1:])
    if isinstance(value, list):
        return [state, *value[1:]]
    return state
