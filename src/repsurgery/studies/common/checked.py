"""Frozen dataclasses whose fields are checked by pydantic, with this package's errors.

Specifications and records are such dataclasses. They import everything they need of pydantic from here, so that a
missing pydantic is reported in one place.
"""

import functools
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any, TypeVar, cast, dataclass_transform

from repsurgery.errors import MissingExtraError, ParameterError, SurgeryError

try:
    import pydantic
    from pydantic import (
        AfterValidator,
        BeforeValidator,
        Field,
        Strict,
        ValidationError,
        field_validator,
        model_validator,
    )
except ImportError as error:
    raise MissingExtraError("Studies and their records need pydantic: pip install 'repsurgery[report]'") from error

__all__ = [
    "Checked",
    "Count",
    "Field",
    "Natural",
    "NonNegative",
    "Several",
    "Share",
    "Specification",
    "Unique",
    "checked",
    "field_validator",
    "model_validator",
    "read_checked",
]

T = TypeVar("T")
C = TypeVar("C", bound="Checked")


def _require_list(items: Any) -> Any:
    if not isinstance(items, list | tuple):
        raise ValueError(f"it is a {type(items).__name__}; it must be a list.")
    return items


Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
# a list is accepted for a tuple, and nothing without an order; its items are as strict as everything else
Several = Annotated[tuple[T, ...], Strict(strict=False), BeforeValidator(_require_list)]
Unique = Annotated[Several[T], AfterValidator(lambda items: tuple(dict.fromkeys(items)))]


@dataclass(frozen=True, slots=True)
class Checked:
    """Base of checked dataclasses."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values; a number that is not finite is a ValueError."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), allow_nan=False))
        return plain

    @model_validator(mode="before")
    @classmethod
    def _require_whole(cls, values: Any) -> Any:
        # defaults serve code that builds a record; a file must state every field except those that may be None
        if isinstance(values, dict):
            absent = [f.name for f in fields(cls) if f.default is not None and f.name not in values]
            if absent:
                raise ValueError(f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} missing.")
        return values


@dataclass(frozen=True, slots=True)
class Specification(Checked):
    """Base of the options of a study.

    Attributes
    ----------
    stated : tuple of str, or None
        The options that the user stated, also where they have the value of the preset; None where it is not known. No
        record holds it.
    """

    stated: tuple[str, ...] | None = field(default=None, kw_only=True, compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the options as JSON values."""
        options = Checked.to_dict(self)
        options.pop("stated")
        return options

    def is_free(self, name: str, preset: "Specification") -> bool:
        """Return whether an option may follow the data: nobody stated it, and it has the value of the ``preset``."""
        stated = self.stated is not None and name in self.stated
        return not stated and bool(getattr(self, name) == getattr(preset, name))


@dataclass_transform(frozen_default=True, field_specifiers=(field, Field))
def checked(error: type[SurgeryError], *, finite: bool = True) -> Callable[[type[C]], type[C]]:
    """Make a subclass of `Checked` a frozen dataclass that raises ``error`` where a field does not fit its annotation.

    Types are strict: a text is not converted to a number, nor a number to a truth value. With ``finite``, NaN and
    infinity are refused.

    Guarantees
    ----------
    The message names every field that does not fit (test_every_wrong_choice_is_named_at_once,
    test_every_wrong_part_of_a_record_is_named).
    """
    config = pydantic.ConfigDict(strict=True, extra="forbid", allow_inf_nan=not finite)

    def decorate(cls: type[C]) -> type[C]:
        kind = cast(type[C], pydantic.dataclasses.dataclass(frozen=True, slots=True, config=config)(cls))
        build = kind.__init__

        @functools.wraps(build)
        def build_or_explain(self: Any, *args: Any, **values: Any) -> None:
            with _explained(kind, error):
                build(self, *args, **values)

        kind.__init__ = build_or_explain  # type: ignore[method-assign] # to raise our own error
        return kind

    return decorate


def read_checked(kind: type[C], plain: Any, error: type[SurgeryError]) -> C:
    """Build a checked dataclass and everything inside it from JSON values."""
    with _explained(kind, error):
        return pydantic.TypeAdapter(kind).validate_json(json.dumps(plain))


@contextmanager
def _explained(kind: type[Checked], error: type[SurgeryError]) -> Iterator[None]:
    try:
        yield
    except ValidationError as problem:
        noun = "option" if issubclass(error, ParameterError) else "field"
        raise error(_in_words(problem, noun, [f.name for f in fields(kind) if f.compare])) from problem


def _in_words(problem: ValidationError, noun: str, names: list[str]) -> str:
    sentences = []
    for detail in problem.errors(include_url=False):
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"]).removeprefix(".")
        match detail["type"]:
            case "value_error":
                sentences.append(f"{name}: {detail['ctx']['error']}".removeprefix(": "))
            case "missing":
                sentences.append(f"{name} is missing.")
            case "unexpected_keyword_argument":
                choice = f"; choose from {', '.join(names)}." if name == detail["loc"][0] else "."
                sentences.append(f"There is no {noun} {name!r}{choice}")
            case _:
                needed = re.sub(r"^\w+ should", "it must", detail["msg"]).replace("valid tuple", "list")
                sentences.append(f"{name} is {detail['input']!r:.200}; {needed}.")
    return " ".join(sentences)
