"""Text files as spreadsheet programs write them: UTF-8, UTF-16 or Windows-1252, with commas, semicolons or tabs."""

import codecs
import csv
import re
import warnings
from collections.abc import Sequence
from pathlib import Path

from repsurgery.errors import DataError, TableWarning

__all__ = ["decoded", "separated_text"]

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SHOWN = 8
"""Lines that an error names."""
_NAMES = {";": "semicolons", "\t": "tabs"}
_STATED = re.compile(r"sep=(.)\r?\n")
"""The first line by which Excel is told the separator."""


def decoded(file: Path, *, remedy: str = "Save the file as UTF-8.") -> str:
    """Return the text of a file in UTF-8, or in UTF-16 with a byte order mark; the mark is left out."""
    data = file.read_bytes()
    try:
        return data.decode("utf-16" if data.startswith(_UTF16) else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        if data.startswith(_UTF16):
            raise DataError(f"{file}, line {line}: byte {error.start} is not UTF-16. {remedy}") from error
        others, remedy = _elsewhere(data, line, remedy)
        raise DataError(f"{file}, line {line}: byte {error.start} is not UTF-8{others}. {remedy}") from error


def _elsewhere(data: bytes, first: int, remedy: str) -> tuple[str, str]:
    """Return words on the lines beside the ``first`` one that is not UTF-8, and what to do about them."""
    wrong, right = [], []
    for number, line in enumerate(data.split(b"\n"), start=1):
        try:
            if not line.decode("utf-8").isascii():
                right.append(number)
        except UnicodeDecodeError:
            wrong.append(number)
    others = [number for number in wrong if number != first]
    shown = ", ".join(map(str, others[:_SHOWN])) + (f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else "")
    words = f", and neither are lines {shown}" if others else ""
    if right:
        return f"{words}, but line {right[0]} is: the file mixes encodings", "Write these lines again as UTF-8."
    return words, remedy


def separated_text(file: Path, needed: Sequence[str]) -> tuple[str, str]:
    """Return the text of a CSV and its separator.

    A comma is the separator if it gives all ``needed`` columns, else a semicolon, else a tab. Where none does, it is
    the one that gives the most columns. A first line ``sep=;`` decides instead.

    Warns
    -----
    TableWarning
        The file is in Windows-1252, or not separated by commas: one sentence says what was assumed.

    Raises
    ------
    DataError
        The file is neither UTF-8 nor Windows-1252, or it is UTF-8 with damaged bytes.

    Guarantees
    ----------
    However Excel saves a table, its cells are the same (test_every_form_of_excel_gives_the_same_cells).
    """
    text, encoding = _in_some_encoding(file)
    stated = _STATED.match(text)
    if stated:
        text = text[stated.end() :]
    columns = _columns(text, stated[1] if stated else ",;\t")
    suitable = [one for one, names in columns.items() if names.issuperset(needed)]
    separator = max(suitable or columns, key=lambda one: len(columns[one]))
    if not suitable:  # the caller says which columns are missing
        return text, separator
    assumed = [f"in {encoding}"] if encoding else []
    assumed += [f"separated by {_NAMES[separator]}"] if separator in _NAMES and not stated else []
    if assumed:
        warnings.warn(
            f"{file} was read as a table {' and '.join(assumed)}. If this is wrong, save it as UTF-8 with commas.",
            TableWarning,
            stacklevel=2,
        )
    return text, separator


def _in_some_encoding(file: Path) -> tuple[str, str]:
    """Return the text and the encoding that was assumed for it, which is empty if the file itself tells it."""
    try:
        return decoded(file), ""
    except DataError:
        data = file.read_bytes()
        partly = data.decode("utf-8", errors="replace")
        # a letter of several bytes is UTF-8, of which other bytes are damaged: no other encoding would be right
        damaged = any(c > "\x7f" and c != "\ufffd" for c in partly)
        if damaged or data.startswith(_UTF16) or b"\0" in data:
            raise
        try:
            return data.decode("cp1252"), "Windows-1252"
        except UnicodeDecodeError:
            pass
        raise


def _columns(text: str, separators: str) -> dict[str, set[str]]:
    header = text.split("\n", 1)[0].rstrip("\r")
    rows = {one: next(csv.reader([header], delimiter=one), []) for one in separators}
    return {one: {name.strip() for name in names} for one, names in rows.items()}
