"""`load_real_toxicity_prompts`: openings of sentences with archived toxicity scores (Gehman et al., 2020)."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from repsurgery.arrays import check_integer
from repsurgery.datasets.folder import ORIGINS, fetch, present_folder
from repsurgery.datasets.records import require_texts, rows_digest
from repsurgery.datasets.rows import numbered_rows
from repsurgery.errors import DataError, ShapeError

__all__ = ["Prompts", "load_real_toxicity_prompts"]

REPOSITORY = "allenai/real-toxicity-prompts"
REVISION = "d3a6507562064c4f37cdf267bdc2faa7b0873173"

_JSON_LINES = (".jsonl", ".ndjson")
_PARQUET = (".parquet", ".pq")
_REMEDY = "Write rows with a 'prompt': its text, or an object with 'text' and 'toxicity'."

Row = tuple[str, float | None, str | None, float | None]
"""Prompt, its toxicity, its continuation, the continuation's toxicity."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prompts for generation in order, with archived toxicity scores where known.

    Parameters
    ----------
    texts : tuple of str
        The n prompts; none is empty.
    toxicity : tuple of float or None
        The archived score of each prompt in [0, 1], or None; an empty tuple if no prompt has a score.
    continuations : tuple of str or None
        The original continuation of each prompt, or None; an empty tuple if none is known.
    continuation_toxicity : tuple of float or None
        The archived scores of the continuations.
    name, source, licence : str
        The name of the prompts, their source, and their terms of use.

    Attributes
    ----------
    digest : str
        SHA-256 of the rows in order, to be quoted with results.

    Guarantees
    ----------
    * `sample` depends on the prompts, n and the seed alone, and repeats no prompt
      (test_a_sample_is_a_seeded_permutation_cut_short).
    * `below`, `sample` and `without` keep each prompt with its own scores and continuation
      (test_choosing_prompts_keeps_rows_together).
    """

    texts: tuple[str, ...]
    toxicity: tuple[float | None, ...] = ()
    continuations: tuple[str | None, ...] = ()
    continuation_toxicity: tuple[float | None, ...] = ()
    name: str = field(kw_only=True)
    source: str = field(kw_only=True)
    licence: str = field(default="unknown", kw_only=True)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        n = len(self.texts)
        object.__setattr__(self, "texts", tuple(self.texts))
        require_texts(self.name, self.texts)
        for column in ("toxicity", "continuations", "continuation_toxicity"):
            values = tuple(getattr(self, column)) or (None,) * n
            if len(values) != n:
                raise ShapeError(f"{self.name} has {n} texts and {len(values)} {column}. Give one or None for each.")
            object.__setattr__(self, column, values)
        object.__setattr__(self, "digest", rows_digest(*self._columns))

    def __len__(self) -> int:
        return len(self.texts)

    def below(self, bound: float | None) -> "Prompts":
        """Return the prompts whose own toxicity is less than ``bound``; with None all prompts, scored or not.

        Raises
        ------
        DataError
            No prompt has a score.
        """
        if bound is None:
            return self
        if all(score is None for score in self.toxicity):
            raise DataError(
                f"{self.name}: none of the {len(self)} prompts has a toxicity, so none can be compared with {bound}. "
                "Pass bound=None to take all of them, or prompts with scores."
            )
        return self._at([i for i, score in enumerate(self.toxicity) if score is not None and score < bound])

    def sample(self, n: int, seed: int) -> "Prompts":
        """Return ``n`` different prompts: the first ``n`` of a seeded permutation, in its order."""
        if check_integer("n", n) > len(self):
            raise DataError(f"{self.name} holds {len(self)} prompts; n is {n}. Choose a smaller n.")
        return self._at(np.random.default_rng(seed).permutation(len(self))[:n].tolist())

    def without(self, other: "Prompts") -> "Prompts":
        """Return the prompts whose text is not among those of ``other``."""
        taken = set(other.texts)
        return self._at([i for i, text in enumerate(self.texts) if text not in taken])

    @property
    def _columns(self) -> tuple[tuple[Any, ...], ...]:
        return self.texts, self.toxicity, self.continuations, self.continuation_toxicity

    def _at(self, chosen: Sequence[int]) -> "Prompts":
        columns = (tuple(column[i] for i in chosen) for column in self._columns)
        return Prompts(*columns, name=self.name, source=self.source, licence=self.licence)


def load_real_toxicity_prompts(data_dir: str | os.PathLike[str] | None = None) -> Prompts:
    """Return prompts with the scores that the Perspective API gave them in 2020, without repeated texts.

    Parameters
    ----------
    data_dir : str, path or None
        JSON Lines or Parquet, or a folder of one such file (or of the shards of one Parquet table). Each row has a
        ``prompt``: an object with ``text`` and ``toxicity`` (a number in [0, 1] or null), or the text alone; and may
        have a ``continuation`` of the same form. None means the folder ``$REPSURGERY_DATA/realtoxicityprompts`` or
        ``realtoxicityprompts_quark_val``, or else the hub's ``allenai/real-toxicity-prompts``, downloaded once.

    Returns
    -------
    Prompts
        Rows in the order of the file, texts unchanged; of repeated prompts the first is kept.

    Raises
    ------
    DataError
        There is nothing to read, a line is not JSON, a prompt has no text, or a toxicity is not a number in [0, 1]; the
        message gives file and line.
    """
    path, origin = _source(data_dir)
    rows: dict[str, Row] = {}
    for row in (row for file in _files(path) for row in _rows(file)):
        rows.setdefault(row[0], row)
    texts, toxicity, continuations, continuation_toxicity = zip(*rows.values(), strict=True)
    return Prompts(
        texts,
        toxicity,
        continuations,
        continuation_toxicity,
        **_provenance(data_dir, origin),
    )


def _provenance(data_dir: str | os.PathLike[str] | None, origin: str) -> dict[str, str]:
    # the user's own file may hold any prompts
    if data_dir is not None and Path(data_dir).is_file():
        return {"name": Path(data_dir).stem, "source": origin}
    return {"name": "real_toxicity_prompts", "source": f"Gehman et al. 2020, {origin}", "licence": "Apache-2.0"}


def _source(data_dir: str | os.PathLike[str] | None) -> tuple[Path, str]:
    if data_dir is not None:
        return Path(data_dir), Path(data_dir).name
    folder = present_folder("realtoxicityprompts") or present_folder("realtoxicityprompts_quark_val")
    if folder is not None:
        return folder, folder.name
    snapshot = fetch(REPOSITORY, revision=REVISION, files=["*.jsonl", "*.parquet"], folder="realtoxicityprompts")
    return snapshot, f"{REPOSITORY} at {REVISION[:7]}"


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = [file for file in sorted(path.rglob("*")) if file.suffix.lower() in (*_JSON_LINES, *_PARQUET)]
    if not files:
        raise DataError(f"{path} holds no JSON Lines or Parquet. The prompts: {ORIGINS['realtoxicityprompts']}.")
    if len(files) > 1 and any(file.suffix.lower() in _JSON_LINES for file in files):
        raise DataError(f"{path} holds several files: {', '.join(file.name for file in files)}. Pass one of them.")
    return files


def _rows(file: Path) -> Iterable[Row]:
    # rows of JSON have all their keys, rows of Parquet only the requested columns
    wanted = ("prompt", "continuation") if file.suffix.lower() in _PARQUET else ("prompt",)
    for place, row in numbered_rows(file, wanted, remedy=_REMEDY):
        text, score = _scored(row.get("prompt"), f"{file}, {place}: the prompt")
        if text is None or not text.strip():
            raise DataError(f"{file}, {place}: the prompt is empty. {_REMEDY}")
        yield text, score, *_scored(row.get("continuation"), f"{file}, {place}: the continuation")


def _scored(value: Any, what: str) -> tuple[str | None, float | None]:
    """Return text and toxicity of a prompt or continuation, each None if it is missing."""
    text, score = (value.get("text"), value.get("toxicity")) if isinstance(value, dict) else (value, None)
    if text is not None and not isinstance(text, str):
        raise DataError(f"{what} is a {type(text).__name__}. {_REMEDY}")
    if text is not None and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise DataError(f"{what} holds half a character (a lone surrogate). Write the text as UTF-8.")
    # NaN, which marks missing values in tables, differs from itself
    if score is None or score != score:
        return text, None
    if isinstance(score, bool) or not isinstance(score, (int, float)) or not 0 <= score <= 1:
        raise DataError(f"{what} has the toxicity {score!r}. Give a number from 0 to 1, or null.")
    return text, float(score)
