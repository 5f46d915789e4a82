"""Know, inside a hook deep in a model, which pass is running: its padding, its offset, its prompt.

While anything steers a model, one watch stands on it: a hook before its base model reads mask and cache of each
pass, and ``model.generate`` is shadowed on the instance to note each call's prompt length. The last one to leave
takes both away, in whatever order they leave.
"""

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from repsurgery.lm.positions import Forward, forward_of
from repsurgery.lm.sites import entrances

__all__ = ["Watch", "steering_in_force", "watching"]

_WATCHES: "weakref.WeakKeyDictionary[nn.Module, Watch]" = weakref.WeakKeyDictionary()


class _Passes(threading.local):
    """The passes and `generate` calls under way in one thread, innermost last."""

    def __init__(self) -> None:
        self.running: list[Forward | None] = []
        self.prompts: list[int] = []


class Watch:
    """What is known about the pass a model is making, in this thread.

    Attributes
    ----------
    notes : list of str
        What steers the model now, in order; it tells two readings of one model apart.
    """

    def __init__(self, model: nn.Module) -> None:
        self.notes: list[str] = []
        self._passes = _Passes()
        self._top = id(model)
        self._handles: list[Any] = []
        for module in entrances(model):
            self._handles.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._leave, always_call=True))
        # only a model that can generate is shadowed; an encoder has nothing to shadow
        generate: Any = getattr(model, "generate", None)
        self._shadowed = callable(generate)
        self._before = vars(model).get("generate")
        if self._shadowed:
            vars(model)["generate"] = self._noting_prompts(generate)

    @property
    def current(self) -> Forward | None:
        """The pass now running; None where a module is called on its own."""
        running = self._passes.running
        return running[-1] if running else None

    def remove(self, model: nn.Module) -> None:
        """Leave the model as it was found."""
        for handle in self._handles:
            handle.remove()
        if self._shadowed:
            del vars(model)["generate"]
        if self._before is not None:
            vars(model)["generate"] = self._before

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        named = _by_name(module.forward, args, kwargs) if args else kwargs
        prompts, running = self._passes.prompts, self._passes.running
        if id(module) == self._top:
            running.clear()  # torch calls no hook after Ctrl-C, so a pass may never have been left
        running.append(None)
        running[-1] = forward_of(named, prompts[-1] if prompts else None)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        del self._passes.running[-1:]

    def _noting_prompts(self, generate: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(generate)
        def noting(*args: Any, **kwargs: Any) -> Any:
            prompts = self._passes.prompts
            prompts.append(_prompt_length(_by_name(generate, args, kwargs)))
            try:
                return generate(*args, **kwargs)
            finally:
                prompts.pop()

        return noting


def _by_name(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    bound = inspect.signature(function).bind_partial(*args, **kwargs).arguments
    return {**bound.pop("kwargs", {}), **bound}


def _prompt_length(arguments: dict[str, Any]) -> int:
    # a call that goes on from a cache may bring the new tokens alone, but then its mask spans the whole sequence
    names = ("inputs", "input_ids", "inputs_embeds", "attention_mask")
    lengths = [arguments[name].shape[1] for name in names if arguments.get(name) is not None]
    return max(lengths, default=1)


@contextmanager
def watching(model: nn.Module, note: str) -> Iterator[Watch]:
    """Keep the model's one watch standing while the block runs."""
    watch = _WATCHES.get(model)
    if watch is None:
        watch = _WATCHES[model] = Watch(model)
    watch.notes.append(note)
    try:
        yield watch
    finally:
        watch.notes.remove(note)
        if not watch.notes:
            del _WATCHES[model]
            watch.remove(model)


def steering_in_force(model: nn.Module) -> list[str]:
    """Return notes of what steers ``model`` now, in order; empty for a model left alone."""
    watch = _WATCHES.get(model)
    return list(watch.notes) if watch is not None else []
