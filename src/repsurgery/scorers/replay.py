"""`ReplayScorer`: archived scores of a service that need not answer any more."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from repsurgery.checkpoint import digest
from repsurgery.errors import DataError
from repsurgery.scorers.base import SCORERS, check_texts

__all__ = ["ReplayScorer", "read_archived"]


@dataclass(frozen=True, slots=True)
class ReplayScorer:
    """Look texts up in an archive of Perspective scores; a text that is not in it, letter by letter, scores None.

    Parameters
    ----------
    archive : mapping of text to number in [0, 1]
    version : str
        The date of the scores; the service changed them over the years without notice.

    Attributes
    ----------
    name : "perspective-replay"
    digest : str
        SHA-256 over texts and scores, independent of their order.

    Examples
    --------
    >>> from repsurgery.scorers import ReplayScorer
    >>> ReplayScorer({"Good morning.": 0.03}, version="2020")(["Good morning.", "good morning."])
    [0.03, None]
    """

    archive: Mapping[str, float] = field(repr=False, compare=False)  # the digest compares it
    version: str = "undated"
    name: str = field(default="perspective-replay", init=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        for text, score in self.archive.items():
            if not _is_score(score):
                raise DataError(f"The archive holds the score {score!r} for {text[:40]!r}; pass numbers from 0 to 1.")
        frozen = MappingProxyType({text: float(score) for text, score in self.archive.items()})
        object.__setattr__(self, "archive", frozen)
        object.__setattr__(self, "digest", digest(sorted(frozen.items())))

    @classmethod
    def from_jsonl(cls, path: str | os.PathLike[str], *, version: str = "undated") -> "ReplayScorer":
        """Replay a file as `read_archived` reads it; where a text occurs twice, its first score counts."""
        archive: dict[str, float] = {}
        for text, score in zip(*read_archived(path), strict=True):
            archive.setdefault(text, score)
        return cls(archive, version)

    def __call__(self, texts: Sequence[str]) -> list[float | None]:
        """Return the archived score (n,) of each text, None where there is none."""
        return [self.archive.get(text) for text in check_texts(texts, caller="ReplayScorer")]


@SCORERS.register("replay")
def _replay(json_lines: str) -> ReplayScorer:
    return ReplayScorer.from_jsonl(json_lines)


def read_archived(path: str | os.PathLike[str]) -> tuple[list[str], list[float]]:
    """Return the texts and toxicities (n,) of RealToxicityPrompts as JSON Lines, in the order of the file.

    Each line is an object whose "prompt" and "continuation" hold "text" and "toxicity"; parts without a toxicity are
    left out.

    Raises
    ------
    DataError
        No such file, a line of another form, a toxicity outside [0, 1], no toxicity at all.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError(f"There is no file {file}. Pass RealToxicityPrompts as JSON Lines.")
    with file.open("rb") as stream:
        pairs = [
            pair for n, line in enumerate(stream, start=1) if line.strip() for pair in _pairs(line, f"{file}, line {n}")
        ]
    if not pairs:
        raise DataError(f"{file} holds no archived score. It needs 'toxicity' beside 'text' in prompt or continuation.")
    return [text for text, _ in pairs], [score for _, score in pairs]


def _pairs(line: bytes, place: str) -> list[tuple[str, float]]:
    try:
        row = json.loads(line)
        pairs = [(row[part]["text"], row[part].get("toxicity")) for part in ("prompt", "continuation") if part in row]
    except (ValueError, KeyError, TypeError, AttributeError):
        pairs = []
    if not pairs or not all(isinstance(text, str) for text, _ in pairs):
        raise DataError(
            f"{place} is not a row of RealToxicityPrompts. It has objects 'prompt' and 'continuation', each with "
            "'text' and 'toxicity'."
        )
    for _, score in pairs:
        if score is not None and not _is_score(score):
            raise DataError(f"{place} has the toxicity {score!r}; it must be a number from 0 to 1.")
    return [(text, float(score)) for text, score in pairs if score is not None]


def _is_score(score: Any) -> bool:
    return isinstance(score, int | float) and not isinstance(score, bool) and 0 <= score <= 1
