"""Checks that plain values from a file match the annotations of the dataclass that is built from them."""

import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from repsurgery.errors import DataError

__all__ = ["check_fields"]


def check_fields(kind: type, values: Mapping[str, Any]) -> None:
    """Raise a `DataError` where one of ``values`` does not have the type that the dataclass ``kind`` annotates.

    An int is accepted for a float, and NaN is a float. Numbers, strings, booleans, None, their unions, literals,
    tuples and mappings are checked; other annotations are ignored.
    """
    for name, hint in get_type_hints(kind).items():
        if name in values and not _fits(values[name], hint):
            raise DataError(f"{kind.__name__}.{name} is {values[name]!r}; it needs {hint}.")


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_fits(one, get_args(hint)[0]) for one in value)
    if get_origin(hint) is Mapping:
        keys, items = get_args(hint)
        return isinstance(value, Mapping) and all(_fits(k, keys) and _fits(v, items) for k, v in value.items())
    if hint is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    if hint in (int, str, bool, type(None)):
        return type(value) is hint
    return True
