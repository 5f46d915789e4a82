"""Reach the hidden state in what a module takes or returns, at a site, with a hook."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from repsurgery.errors import SiteError
from repsurgery.lm.sites.names import Site
from repsurgery.lm.steer.threads import HOOKS, Owner

__all__ = ["Visit", "attach"]

Visit = Callable[[torch.Tensor], torch.Tensor | None]
"""Takes the state at a site, (batch, length, d) or (rows, d); returns the one to go on with, or None to leave it."""


def attach(site: Site, visit: Visit, *, holds: Callable[[], bool] | None = None) -> Any:
    """Let ``visit`` see every state that passes ``site``; return the handle whose ``remove`` ends that.

    ``holds`` says whether the code that asks is meant; by default that is the thread that attached, and no other.
    """
    meant = Owner().here if holds is None else holds
    with HOOKS:
        if site.side == "input":
            return site.module.register_forward_pre_hook(_entering(site, visit, meant), with_kwargs=True)
        return site.module.register_forward_hook(_leaving(site, visit, meant))


def _leaving(site: Site, visit: Visit, meant: Callable[[], bool]) -> Callable[[nn.Module, Any, Any], Any]:
    def hook(module: nn.Module, args: Any, output: Any) -> Any:
        # a graph that Dynamo traces here would keep what this block does for ever; its other flag is for all threads
        if torch.compiler.is_dynamo_compiling() or not meant():
            return None
        new = visit(_state_of(output, site))
        return None if new is None else _replaced(output, new)

    return hook


def _entering(site: Site, visit: Visit, meant: Callable[[], bool]) -> Callable[..., Any]:
    # PyTorch looks up how to call a hook after it has looked up the hook, so one that another thread sets or removes at
    # that moment is called without keywords; it is never meant for the thread that calls it
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        if torch.compiler.is_dynamo_compiling() or not meant() or kwargs is None:
            return None
        new = visit(_state_of(args if args else kwargs.get("hidden_states"), site))
        if new is None:
            return None
        return ((new, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": new})

    return hook


def _state_of(value: Any, site: Site) -> torch.Tensor:
    # transformers 5 blocks return the state itself, older ones and attention modules a tuple that starts with it
    state = value
    if hasattr(value, "last_hidden_state"):
        state = value.last_hidden_state
    elif isinstance(value, (tuple, list)) and value:
        state = value[0]
    if not isinstance(state, torch.Tensor) or state.ndim < 2 or not state.is_floating_point():
        raise SiteError(
            f"At site {site.name!r} ({site.path}) there is no hidden state but a {type(state).__name__}. "
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
