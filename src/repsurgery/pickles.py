"""Pickles read as data: numbers, strings, lists, dicts. No name in the file is imported or called."""

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
    # the inherited method allocates the announced length before reading, unlike those of the other opcodes
    (size,) = struct.unpack("<Q", unpickler.read(8))
    unpickler.append(bytearray(unpickler.read(size)))


# the C implementation stores its memo in an array as long as the highest index in the file, so that nine bytes can
# cost 2 GB; this one uses a dict
class _PlainUnpickler(pickle._Unpickler):
    dispatch: ClassVar[dict[int, Any]] = {**pickle._Unpickler.dispatch, pickle.BYTEARRAY8[0]: _load_bytearray8}
    stand_ins: Mapping[str, Any]

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.stand_ins[f"{module}.{name}"]
        except KeyError:
            raise _Refused(f"{module}.{name}") from None


def read_plain_pickle(file: Path, stand_ins: Mapping[str, Any] = _NOTHING) -> Any:
    """Return the value in ``file`` if it consists of built-in containers, strings, numbers and None alone.

    Parameters
    ----------
    file : Path
    stand_ins : mapping of "module.name" to object
        Replacements of names in the pickle. The file decides how they are called and which attributes are set on
        them, so use built-in types for which this is harmless, such as ``dict`` and ``types.SimpleNamespace``.

    Raises
    ------
    DataError
        The file does not exist, is truncated, is not a pickle, or names any other class or function, which is neither
        imported nor called.

    Guarantees
    ----------
    Memory stays in proportion to the size of the file, whatever lengths it states
    (test_a_small_pickle_costs_little_memory, test_no_length_in_a_pickle_allocates_more_than_the_file_holds).
    """
    if not file.is_file():
        raise DataError(f"There is no file {file}. Pass a pickle of a list of dicts.")
    try:
        # read from memory, so that a stated length allocates no more than the file holds
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
    # a damaged pickle can raise any error, depending on the damaged byte
    except Exception as error:
        raise DataError(
            f"{file} is truncated or not a pickle ({type(error).__name__}: {error}). Fetch it again."
        ) from error
