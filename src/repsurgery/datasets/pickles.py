"""Pickles as data: numbers, strings, lists, dicts. Nothing in the file is called."""

import pickle
from pathlib import Path
from typing import Any, NoReturn

from repsurgery.errors import DataError

__all__ = ["read_plain_pickle"]


class _Refused(pickle.UnpicklingError):
    """The pickle names something to import."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise _Refused(f"{module}.{name}")


def read_plain_pickle(file: Path) -> Any:
    """Return what ``file`` holds if it is made of built-in containers, strings, numbers and None alone.

    Raises
    ------
    DataError
        No such file; a file that is cut off or no pickle; a pickle that names a class or function, which is not
        looked up, let alone called.
    """
    if not file.is_file():
        raise DataError(f"There is no file {file}. Pass a pickle of a list of dicts.")
    try:
        with file.open("rb") as stream:
            return _PlainUnpickler(stream, encoding="utf-8").load()
    except _Refused as error:
        raise DataError(
            f"{file} names {error}; only lists, dicts, strings and numbers are read from a pickle. "
            "Save the rows as JSON Lines."
        ) from error
    # what a damaged pickle raises depends on the byte that was hit
    except Exception as error:
        raise DataError(f"{file} is cut off or no pickle ({type(error).__name__}: {error}). Fetch it again.") from error
