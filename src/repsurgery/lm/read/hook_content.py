"""What decides the effect of a hook that other code put on a model: its code, and the values that the code reaches."""

import functools
import inspect
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import nn

from repsurgery.lm.load.fingerprint import fingerprint, plain_content

__all__ = ["hook_content", "qualified_name"]


def hook_content(hook: Any) -> Any:
    """Return what decides the effect of ``hook`` as JSON.

    It covers the code with its constants, default values, variables of enclosing functions and globals that the code
    names, the attributes of objects, and the weights of modules. An object without readable content is represented by
    the name of its class.

    Guarantees
    ----------
    Hooks of one name with other values are told apart (test_hooks_of_one_name_are_told_apart_by_their_values).
    """
    return _content(hook, set())


def qualified_name(function: Any) -> str:
    """Return the module and the name of a function, or of the class of an object."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _content(value: Any, above: set[int]) -> Any:
    if id(value) in above:
        return "above"  # a value that contains itself
    inside = above | {id(value)}
    match value:
        case FunctionType():
            found = inspect.getclosurevars(value)
            reached = [value.__defaults__, value.__kwdefaults__, dict(found.nonlocals), dict(found.globals)]
            return [qualified_name(value), _code(value.__code__), _content(reached, inside)]
        case MethodType():
            return [_content(value.__func__, inside), _content(value.__self__, inside)]
        case functools.partial():
            return [_content(value.func, inside), _content([value.args, value.keywords], inside)]
        case nn.Module():
            return [qualified_name(value), fingerprint(value)]
        case dict():
            return [[str(name), _content(one, inside)] for name, one in value.items()]
        case list() | tuple():
            return [_content(one, inside) for one in value]
        case ModuleType() | BuiltinFunctionType() | type():
            return getattr(value, "__qualname__", value.__name__)
    if type(value).__module__ not in ("builtins", "torch", "numpy") and getattr(value, "__dict__", None):
        return [qualified_name(value), _content(vars(value), inside)]
    return plain_content(value)


def _code(code: CodeType) -> list[Any]:
    constants = [_code(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return [code.co_code.hex(), list(code.co_names), constants]
