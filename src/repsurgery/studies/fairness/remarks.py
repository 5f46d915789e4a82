"""Warnings of this package as remarks in a record, instead of lines that scroll away."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from repsurgery.errors import SurgeryWarning

__all__ = ["remarked"]


@contextmanager
def remarked() -> Iterator[list[str]]:
    """Collect the text of every `SurgeryWarning` of the block, each once; other warnings go their way afterwards."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SurgeryWarning)
        yield found
    for w in caught:
        if not issubclass(w.category, SurgeryWarning):
            warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
        elif str(w.message) not in found:
            found.append(str(w.message))
