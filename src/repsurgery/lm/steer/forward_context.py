"""Know, inside a hook deep in a model, which pass is running: its padding, its offset, its prompt.

While anything steers a model, one watch stands on it: hooks before and after its entrances read mask and cache of each
pass, ``generate`` is shadowed on the instance to note each call's prompt, and checkpointed layers are told again which
pass they belong to when the backward pass runs them once more. The last one to leave takes everything away, in
whatever order they leave and from whatever thread.
"""

import functools
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, MethodType
from typing import Any, Protocol

import torch
from torch import nn

from repsurgery.errors import PassError
from repsurgery.lm.sites.names import entrances
from repsurgery.lm.sites.wrappers import outermost_models
from repsurgery.lm.steer.passes import Call, Role, call_of, forward_of
from repsurgery.lm.steer.positions import Forward
from repsurgery.lm.steer.threads import HOOKS, acting_for, acting_thread

__all__ = ["Steering", "Watch", "found_on_file", "steering_in_force", "watching"]

_CHECKPOINT = "_gradient_checkpointing_func"
_WATCHES: "weakref.WeakKeyDictionary[nn.Module, Watch]" = weakref.WeakKeyDictionary()


class Steering(Protocol):
    """What stands on a model: a note that tells two steerings apart, and whether it holds for the code that asks."""

    note: str

    def holds_here(self) -> bool:
        """Return whether this steering is for the thread that asks."""

    def excuse(self) -> None:
        """Note that results which this steering decides were found on file, so that no pass need be made."""


class _Passes(threading.local):
    """The passes and `generate` calls under way in one thread, innermost last."""

    def __init__(self) -> None:
        self.running: list[tuple[FrameType, Forward]] = []
        self.calls: list[Call] = []


class Watch:
    """What is known about the pass a model is making, in this thread.

    Attributes
    ----------
    steerings : tuple of Steering
        What stands on the model now, in order of entering, whatever thread it is for.
    """

    def __init__(self) -> None:
        self.steerings: tuple[Steering, ...] = ()
        self._passes = _Passes()
        self._handles: list[Any] = []
        self._shadows: list[tuple[nn.Module, str, Any, Any]] = []
        self._modules: set[int] = set()
        self._generating: list[threading.Thread] = []

    def cover(self, model: nn.Module) -> None:
        """Watch the entrances of ``model`` that are not watched yet."""
        for module, role in entrances(model):
            if id(module) in self._modules:
                continue
            self._modules.add(id(module))
            self._handles.append(module.register_forward_pre_hook(self._entering(role), with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._leaving(), always_call=True))
        inner: Any
        for inner in outermost_models(model):
            # only a model that can generate is shadowed; an encoder has nothing to shadow
            if callable(getattr(inner, "generate", None)):
                self._shadow(inner, "generate", _NotedGenerate(self, inner))
        self._cover_checkpoints(model)

    def _cover_checkpoints(self, model: nn.Module) -> None:
        for module in model.modules():
            if _CHECKPOINT in vars(module):
                self._shadow(module, _CHECKPOINT, self._again(vars(module)[_CHECKPOINT]))

    @property
    def current(self) -> Forward | None:
        """The pass now running; None where a module is called on its own."""
        running = self._passes.running
        return running[-1][1] if running else None

    def repeats_a_foreign_pass(self) -> bool:
        """Return whether a backward pass runs a checkpointed layer again whose forward was made outside every block."""
        checkpointed = any(name == _CHECKPOINT for _, name, _, _ in self._shadows)
        return checkpointed and torch._C._current_graph_task_id() != -1

    def generates_elsewhere(self) -> bool:
        """Return whether a thread other than this one is inside a call of ``generate``."""
        me = threading.current_thread()
        return any(thread is not me for thread in list(self._generating))

    def intact(self) -> bool:
        """Return whether every hook of this watch still stands."""
        return all(handle.id in (handle.hooks_dict_ref() or ()) for handle in self._handles)

    def remove(self) -> None:
        """Leave the model as it was found, and what others have put in our place where they put it."""
        for handle in self._handles:
            handle.remove()
        for module, name, ours, before in reversed(self._shadows):
            if vars(module).get(name) is not ours:
                continue
            del vars(module)[name]
            if before is not None:
                vars(module)[name] = before

    def _shadow(self, module: nn.Module, name: str, ours: Any) -> None:
        if any(vars(module).get(name) is mine for _, _, mine, _ in self._shadows):
            return
        self._shadows.append((module, name, ours, vars(module).get(name)))
        vars(module)[name] = ours

    def _entering(self, role: Role) -> Callable[..., None]:
        # PyTorch looks up how to call a hook after it has looked up the hook: one that comes or goes in another thread
        # at that moment is called without its keywords, but never in a thread that is steered
        def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
            named = _named(module, args, kwargs or {})
            calls, running = self._passes.calls, self._passes.running
            frame = sys._getframe(1)
            # torch calls no hook after Ctrl-C, so a pass may never have been left: its frame is gone
            alive = set(_frames_from(frame))
            del running[next((i for i, (its, _) in enumerate(running) if its not in alive), len(running)) :]
            if module.training:
                self._cover_checkpoints(module)
            forward = forward_of(named, role=role, call=calls[-1] if calls else None, outer=self.current)
            running.append((frame, forward))

        return enter

    def _leaving(self) -> Callable[..., None]:
        def leave(module: nn.Module, args: Any, output: Any) -> None:
            del self._passes.running[-1:]

        return leave

    def _again(self, checkpoint: Callable[..., Any]) -> Callable[..., Any]:
        """Let ``checkpoint`` run its function in the same pass, for the same thread, each time it runs it."""

        @functools.wraps(checkpoint)
        def checkpointed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            running, thread, steerings = list(self._passes.running), acting_thread(), self.in_force()

            def again(*args: Any, **kwargs: Any) -> Any:
                with acting_for(thread):
                    if self.in_force() != steerings:
                        raise PassError(
                            "The backward pass of a checkpointed model runs its layers again, and other steering is in "
                            "force now. Call backward() inside the same `with lm.steer(...)` block as the forward."
                        )
                    before, self._passes.running = self._passes.running, running
                    try:
                        return function(*args, **kwargs)
                    finally:
                        self._passes.running = before

            return checkpoint(again, *args, **kwargs)

        return checkpointed

    @contextmanager
    def generating(self, call: Call) -> Iterator[None]:
        """Know, while the block runs, that this thread is inside ``call``."""
        calls, me = self._passes.calls, threading.current_thread()
        calls.append(call)
        self._generating.append(me)
        try:
            yield
        finally:
            calls.pop()
            self._generating.remove(me)

    def in_force(self) -> list[Steering]:
        """Return what steers the model in this thread, in order."""
        return [steering for steering in self.steerings if steering.holds_here()]


class _NotedGenerate:
    """Stands in for ``model.generate`` and notes each call; a copy of the model gets its own ``generate`` back."""

    def __init__(self, watch: Watch, model: Any) -> None:
        self._watch, self._model, self._generate = watch, model, model.generate
        functools.update_wrapper(self, model.generate)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        prepare = vars(self._model).get("prepare_inputs_for_generation")
        with self._watch.generating(call_of(_by_name(self._generate, args, kwargs), prepare)):
            return self._generate(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copied = memo.get(id(self._model), self._model)
        return MethodType(type(copied).generate, copied)


def _frames_from(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _by_name(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        signature = inspect.signature(function)
        bound = signature.bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return kwargs  # the call itself is about to fail and say why, or it has no signature
    rest = [name for name, parameter in signature.parameters.items() if parameter.kind is parameter.VAR_KEYWORD]
    return {**{key: value for name in rest for key, value in bound.pop(name, {}).items()}, **bound}


def _named(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    if not args:
        return kwargs
    found = _by_name(module.forward, args, kwargs)
    if found.keys() & {"input_ids", "inputs_embeds"}:
        return found
    # a forward that was replaced on the instance may not say what its arguments are; that of the class does
    by_class = _by_name(functools.partial(type(module).forward, module), args, kwargs)
    return by_class if by_class.keys() & {"input_ids", "inputs_embeds"} else found


@contextmanager
def watching(model: nn.Module, steering: Steering, *, around: nn.Module | None = None) -> Iterator[Watch]:
    """Keep the one watch of ``model`` standing while the block runs; ``around`` is the wrapper it is called through."""
    with HOOKS:
        watch = _WATCHES.get(model)
        if watch is None:
            watch = _WATCHES[model] = Watch()
        try:
            watch.cover(model if around is None else around)
            watch.steerings = (*watch.steerings, steering)
        except BaseException:
            _drop_if_idle(model, watch)
            raise
    try:
        yield watch
    finally:
        with HOOKS:
            watch.steerings = tuple(other for other in watch.steerings if other is not steering)
            _drop_if_idle(model, watch)


def _drop_if_idle(model: nn.Module, watch: Watch) -> None:
    if not watch.steerings:
        _WATCHES.pop(model, None)
        watch.remove()


def found_on_file(model: nn.Module) -> None:
    """Tell what steers ``model`` in this thread that no pass is needed: the results are on file already."""
    watch = _WATCHES.get(model)
    for steering in watch.in_force() if watch is not None else ():
        steering.excuse()


def steering_in_force(model: nn.Module, *, in_any_thread: bool = False) -> list[str]:
    """Return notes of what steers ``model`` in this thread, in order; empty for a model left alone."""
    watch = _WATCHES.get(model)
    if watch is None:
        return []
    return [steering.note for steering in (watch.steerings if in_any_thread else watch.in_force())]
