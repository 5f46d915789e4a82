"""Pickles as data: numbers, strings, lists, dicts. Nothing that the file names is looked up or called."""

import io
import pickle
import struct
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from repsurgery.errors import DataError

__all__ = ["read_plain_pickle"]

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class _Refused(pickle.UnpicklingError):
    """The pickle names something to import."""


def _load_bytearray8(unpickler: Any) -> None:
    # the inherited method allocates what the file announces before it reads; those of the other opcodes read first
    (size,) = struct.unpack("<Q", unpickler.read(8))
    unpickler.append(bytearray(unpickler.read(size)))


# the reader in C keeps its memo in an array, as long as the highest number that the file names: nine bytes cost 2 GB;
# this one keeps a dict
class _PlainUnpickler(pickle._Unpickler):
    dispatch: ClassVar[dict[int, Any]] = {**pickle._Unpickler.dispatch, pickle.BYTEARRAY8[0]: _load_bytearray8}
    stand_ins: Mapping[str, Any]

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.stand_ins[f"{module}.{name}"]
        except KeyError:
            raise _Refused(f"{module}.{name}") from None


def read_plain_pickle(file: Path, stand_ins: Mapping[str, Any] = _NOTHING) -> Any:
    """Return what ``file`` holds if it is made of built-in containers, strings, numbers and None alone.

    Parameters
    ----------
    file : Path
    stand_ins : mapping of "module.name" to object
        What takes the place of a name in the pickle. The file decides how it is called and which attributes are set
        on it, so give built-in types that do nothing with either, such as ``dict`` and ``types.SimpleNamespace``.

    Raises
    ------
    DataError
        No such file; a file that is cut off or no pickle; a pickle that names any other class or function, which is
        not looked up, let alone called.

    Guarantees
    ----------
    Memory stays in proportion to the file, whatever numbers it names (test_a_small_pickle_costs_little_memory,
    test_no_length_in_a_pickle_allocates_more_than_the_file_holds).
    """
    if not file.is_file():
        raise DataError(f"There is no file {file}. Pass a pickle of a list of dicts.")
    try:
        # from memory: a length that the file names allocates no more than there is
        unpickler = _PlainUnpickler(io.BytesIO(file.read_bytes()), encoding="utf-8")
        unpickler.stand_ins = stand_ins
        return unpickler.load()
    except _Refused as error:
        raise DataError(
            f"{file} names {error}; only lists, dicts, strings and numbers are read from a pickle. "
            "Save the rows as JSON Lines."
        ) from error
    except MemoryError:
        raise  # a large file, not a damaged one
    # what a damaged pickle raises depends on the byte that was hit
    except Exception as error:
        raise DataError(f"{file} is cut off or no pickle ({type(error).__name__}: {error}). Fetch it again.") from error
