"""Parameter lists that say what the signatures say: an extension of Griffe, which reads the docstrings.

Griffe takes the first choice of ``{"a", "b"}`` for the default, gives all names of ``source, target`` the default of
the first, and reads ``"nearest-mean"`` as a difference of two names. Here every parameter has the default of its own in
the signature, and types with quoted choices stay as they were written.
"""

import re
from functools import cached_property
from typing import Any

import griffe

ITEM = re.compile(r"^(?P<names>\w[\w., ]*?) : (?P<type>.*[\"'].*)$", re.MULTILINE)


def quoted_types(docstring: str) -> dict[str, str]:
    """Return the types that hold quoted choices, by the name of their parameter or attribute, as they were written.

    >>> quoted_types('gate : {"nearest-mean", "lda"}, optional')
    {'gate': '"nearest-mean", "lda"'}
    >>> quoted_types('alpha : float or "auto", default "auto"')
    {'alpha': 'float or "auto"'}
    >>> quoted_types("n : int")
    {}
    """
    found = {}
    for item in ITEM.finditer(docstring):
        written = re.sub(r"(, optional|, default.*)$", "", item["type"])
        written = re.sub(r"^\{([^{}]*)\}$", r"\1", written)
        found |= dict.fromkeys(re.split(r", ", item["names"]), written)
    return found


class Corrected(griffe.Docstring):
    """A docstring whose parameters have the defaults of their signature; it is parsed when a page shows it."""

    @cached_property
    def parsed(self) -> list[griffe.DocstringSection]:
        """Return the sections of the docstring, corrected."""
        sections = self.parse()
        types = quoted_types(self.value)
        for section in sections:
            for entry in section.value if isinstance(section.value, list) else ():
                name = getattr(entry, "name", None)
                if name in types:
                    entry.annotation = types[name]
                if section.kind is griffe.DocstringSectionKind.parameters:
                    typed = (
                        re.search(rf"^[\w, *]*(?<!\w){re.escape(name)}\b[\w, *]* : ", self.value, re.MULTILINE)
                        is not None
                    )
                    _follow_signature(entry, self.parent, typed=typed)
        return sections


class Parameters(griffe.Extension):
    """Correct the parameter lists of a package."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Correct every docstring of the package."""
        _walk(pkg)


def _walk(item: Any) -> None:
    for member in item.members.values():
        if not member.is_alias:
            if member.docstring is not None:
                member.docstring.__class__ = Corrected
            _walk(member)


def _follow_signature(entry: Any, item: Any, *, typed: bool) -> None:
    # a class has the parameters of its __init__
    try:
        parameter = item.parameters[entry.name.lstrip("*")]
    except (AttributeError, KeyError):
        return
    entry.value = parameter.default
    if not typed:
        entry.annotation = parameter.annotation
