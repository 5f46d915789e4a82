"""The pass that a model is making, for the hooks deep inside it: its padding, its offset, its prompt.

While any block steers a model, the model has one forward context: hooks before and after its entrances read the mask
and the cache of each pass, ``generate`` is shadowed on the instance to record each call's prompt, and checkpointed
layers get their pass back when the backward pass runs them again. The last block to end removes all of it, whatever
the order and the thread in which the blocks end.
"""

import functools
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, MethodType
from typing import Any

import torch
from torch import nn

from repsurgery.errors import PassError
from repsurgery.lm.sites.names import Role, entrances
from repsurgery.lm.sites.wrappers import outermost_models
from repsurgery.lm.steer.block import Block
from repsurgery.lm.steer.passes import Call, call_of, forward_of
from repsurgery.lm.steer.positions import Forward
from repsurgery.lm.steer.texts import stated_texts
from repsurgery.lm.steer.threads import HOOKS_LOCK, acting_for, acting_thread

__all__ = ["ForwardContext", "excuse_blocks", "steering_in_force", "tracking"]

_CHECKPOINT = "_gradient_checkpointing_func"
_CONTEXTS: "weakref.WeakKeyDictionary[nn.Module, ForwardContext]" = weakref.WeakKeyDictionary()


class _Passes(threading.local):
    """The passes and `generate` calls running in one thread, innermost last."""

    def __init__(self) -> None:
        self.running: list[tuple[FrameType, Forward]] = []
        self.calls: list[Call] = []


class ForwardContext:
    """The passes and ``generate`` calls that one model is making, per thread.

    Attributes
    ----------
    blocks : tuple of Block
        The open steering blocks of the model, of every thread, in order of entering.
    """

    def __init__(self) -> None:
        self.blocks: tuple[Block, ...] = ()
        self._passes = _Passes()
        self._handles: list[Any] = []
        self._shadows: list[tuple[nn.Module, str, Any, Any]] = []
        self._modules: set[int] = set()
        self._generating: list[threading.Thread] = []

    def cover(self, model: nn.Module) -> None:
        """Set hooks on the entrances of ``model`` that have none yet."""
        for module, role in entrances(model):
            if id(module) in self._modules:
                continue
            self._modules.add(id(module))
            self._handles.append(module.register_forward_pre_hook(self._entering(role), with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._leaving(), always_call=True))
        inner: Any
        for inner in outermost_models(model):
            # an encoder has no generate
            if callable(getattr(inner, "generate", None)):
                self._shadow(inner, "generate", _RecordedGenerate(self, inner))
        self._cover_checkpoints(model)

    def _cover_checkpoints(self, model: nn.Module) -> None:
        for module in model.modules():
            if _CHECKPOINT in vars(module):
                self._shadow(module, _CHECKPOINT, self._in_same_pass(vars(module)[_CHECKPOINT]))

    @property
    def current(self) -> Forward | None:
        """The running pass; None where a module is called outside a pass of its model."""
        running = self._passes.running
        return running[-1][1] if running else None

    @property
    def call(self) -> Call | None:
        """The call of ``generate`` that is running in this thread, if any."""
        return self._passes.calls[-1] if self._passes.calls else None

    def repeats_a_foreign_pass(self) -> bool:
        """Return whether a backward pass reruns a checkpointed layer whose forward pass ran outside every block."""
        checkpointed = any(name == _CHECKPOINT for _, name, _, _ in self._shadows)
        return checkpointed and torch._C._current_graph_task_id() != -1

    def generates_elsewhere(self) -> bool:
        """Return whether a thread other than this one is inside a call of ``generate``."""
        me = threading.current_thread()
        return any(thread is not me for thread in list(self._generating))

    def intact(self) -> bool:
        """Return whether every hook of this context is still set."""
        return all(handle.id in (handle.hooks_dict_ref() or ()) for handle in self._handles)

    def remove(self) -> None:
        """Restore the model, except for attributes that other code has replaced meanwhile."""
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
        # PyTorch looks up how to call a hook after it has looked up the hook: a hook that another thread sets or
        # removes at that moment is called without its keywords, but never in a thread that is steered
        def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
            named = _named(module, args, kwargs or {})
            calls, running = self._passes.calls, self._passes.running
            frame = sys._getframe(1)
            # torch calls no hook after Ctrl-C, so an interrupted pass may still be listed, but its frame is gone
            alive = set(_frames_from(frame))
            del running[next((i for i, (its, _) in enumerate(running) if its not in alive), len(running)) :]
            if module.training:
                self._cover_checkpoints(module)
            call = calls[-1] if calls else None
            forward = forward_of(named, role=role, call=call, outer=self.current, texts=stated_texts())
            running.append((frame, forward))

        return enter

    def _leaving(self) -> Callable[..., None]:
        def leave(module: nn.Module, args: Any, output: Any) -> None:
            del self._passes.running[-1:]

        return leave

    def _in_same_pass(self, checkpoint: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``checkpoint`` such that each run of its function belongs to the same pass and thread."""

        @functools.wraps(checkpoint)
        def checkpointed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            running, thread, blocks = list(self._passes.running), acting_thread(), self.in_force()

            def again(*args: Any, **kwargs: Any) -> Any:
                with acting_for(thread):
                    if self.in_force() != blocks:
                        raise PassError(
                            "The backward pass of a checkpointed model runs its layers again, and the steering in "
                            "force has changed. Call backward() in the same `with lm.steer(...)` block as the forward."
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
        """Record, while the block runs, that this thread is inside ``call``."""
        calls, me = self._passes.calls, threading.current_thread()
        calls.append(call)
        self._generating.append(me)
        try:
            yield
        finally:
            calls.pop()
            self._generating.remove(me)

    def in_force(self) -> list[Block]:
        """Return the blocks that steer the model in this thread, in order."""
        return [block for block in self.blocks if block.holds_here()]


class _RecordedGenerate:
    """Replaces ``model.generate`` and records each call; a deep copy of the model gets the original method."""

    def __init__(self, context: ForwardContext, model: Any) -> None:
        self._context, self._model, self._generate = context, model, model.generate
        functools.update_wrapper(self, model.generate)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        prepare = vars(self._model).get("prepare_inputs_for_generation")
        with self._context.generating(call_of(_by_name(self._generate, args, kwargs), prepare)):
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
        return kwargs  # the call itself will fail with its own error, or the function has no signature
    rest = [name for name, parameter in signature.parameters.items() if parameter.kind is parameter.VAR_KEYWORD]
    return {**{key: value for name in rest for key, value in bound.pop(name, {}).items()}, **bound}


def _named(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    if not args:
        return kwargs
    named = _by_name(module.forward, args, kwargs)
    if named.keys() & {"input_ids", "inputs_embeds"}:
        return named
    # a forward that was replaced on the instance may not name its arguments; that of the class does
    by_class = _by_name(functools.partial(type(module).forward, module), args, kwargs)
    return by_class if by_class.keys() & {"input_ids", "inputs_embeds"} else named


@contextmanager
def tracking(model: nn.Module, block: Block, *, around: nn.Module) -> Iterator[ForwardContext]:
    """Track the passes of ``model`` for ``block``; ``around`` is the model or the wrapper that is called."""
    with HOOKS_LOCK:
        context = _CONTEXTS.get(model)
        if context is None:
            context = _CONTEXTS[model] = ForwardContext()
        try:
            context.cover(around)
            context.blocks = (*context.blocks, block)
        except BaseException:
            _remove_if_idle(model, context)
            raise
    try:
        yield context
    finally:
        with HOOKS_LOCK:
            context.blocks = tuple(other for other in context.blocks if other is not block)
            _remove_if_idle(model, context)


def _remove_if_idle(model: nn.Module, context: ForwardContext) -> None:
    if not context.blocks:
        _CONTEXTS.pop(model, None)
        context.remove()


def excuse_blocks(model: nn.Module) -> None:
    """Excuse the blocks that steer ``model`` in this thread from making a pass: its results are already stored."""
    context = _CONTEXTS.get(model)
    for block in context.in_force() if context is not None else ():
        block.excuse()


def steering_in_force(model: nn.Module, *, in_any_thread: bool = False) -> list[str]:
    """Return the notes of the blocks that steer ``model`` in this thread, in order; empty where none does."""
    context = _CONTEXTS.get(model)
    if context is None:
        return []
    return [block.note for block in (context.blocks if in_any_thread else context.in_force())]
