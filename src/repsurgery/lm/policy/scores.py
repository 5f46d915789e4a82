"""Scores of texts, each distinct text once, stored as soon as they are known."""

import math
import os
import warnings
from collections.abc import Callable, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

from repsurgery.checkpoint import digest
from repsurgery.errors import DataError, IdentityWarning, ParameterError
from repsurgery.lm.policy.notes import notes_in
from repsurgery.progress import progress_bar

__all__ = ["Scorer", "Scores"]

Scorer = Callable[[list[str]], Sequence[float | None]]
"""Takes texts and returns one score per text, in order; None where there is nothing to score."""
AT_ONCE = 256
"""Texts that are scored before their scores are stored."""


class Scores:
    """What ``scorer`` says of texts; a text that occurs twice is scored once.

    Parameters
    ----------
    scorer : function of a list of texts
        Its scores are stored only if it has a ``digest``, which identifies it together with its ``name`` and
        ``version``.
    work_dir : path or None
        Scores are stored there by text, whatever the model that wrote the text.
    """

    def __init__(self, scorer: Scorer, work_dir: str | os.PathLike[str] | None) -> None:
        if not callable(scorer):
            raise ParameterError(
                f"scorer is {scorer!r}; it must be a function that takes a list of texts and returns one score per "
                "text, such as repsurgery.scorers.load_scorer('minilm')."
            )
        self._scorer = scorer
        self.name = str(getattr(scorer, "name", None) or getattr(scorer, "__name__", type(scorer).__name__))
        self._notes = notes_in(self._path(work_dir))

    def of(self, texts: Sequence[str], *, progress: bool, label: str = "scoring") -> list[float | None]:
        """Return the score of each text; those that are not known yet are asked for and stored."""
        distinct = list(dict.fromkeys(texts))
        missing = [text for text in distinct if text not in self._notes]
        done = len(distinct) - len(missing)
        with progress_bar(label, len(distinct), show=progress and bool(missing), done=done) as advance:
            for start in range(0, len(missing), AT_ONCE):
                part = missing[start : start + AT_ONCE]
                self._notes.note(dict(zip(part, self._checked(part, self._scorer(part)), strict=True)))
                advance(len(part))
        return [self._notes[text] for text in texts]

    def _path(self, work_dir: str | os.PathLike[str] | None) -> Path | None:
        if work_dir is None:
            return None
        facts = {name: getattr(self._scorer, name, None) for name in ("name", "version", "digest")}
        if facts["digest"] is None:
            warnings.warn(
                f"The scores of {self.name} are not kept in {os.fspath(work_dir)}: the scorer has no digest that tells "
                "it from others. Give it the attributes name, version and digest to resume after an interruption.",
                IdentityWarning,
                stacklevel=4,
            )
            return None
        return Path(work_dir) / f"scores-{digest({name: str(fact) for name, fact in facts.items()})[:16]}.jsonl"

    def _checked(self, texts: list[str], answer: Any) -> list[float | None]:
        scores = list(answer)
        if len(scores) != len(texts):
            raise DataError(
                f"The scorer {self.name} gave {len(scores)} scores for {len(texts)} texts. Return one score per text."
            )
        for text, score in zip(texts, scores, strict=True):
            if score is not None and not (isinstance(score, Real) and math.isfinite(score)):
                raise DataError(
                    f"The scorer {self.name} gave the score {score!r} for {text[:40]!r}. Return a finite number, or "
                    "None where there is nothing to score."
                )
        return [None if score is None else float(score) for score in scores]
