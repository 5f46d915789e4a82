"""What a reader must know to judge the numbers of a study: warnings of its methods, and limits of its data."""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from repsurgery.datasets import ConceptTexts, Representations
from repsurgery.errors import SurgeryWarning
from repsurgery.studies.fairness.record import Setting
from repsurgery.studies.fairness.spec import StudySpec

__all__ = ["collected_warnings", "study_notes"]


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the text of every `SurgeryWarning` of the block, each once; other warnings are issued at its end."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SurgeryWarning)
        yield texts
    for w in caught:
        if not issubclass(w.category, SurgeryWarning):
            warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
        elif str(w.message) not in texts:
            texts.append(str(w.message))


def study_notes(spec: StudySpec, data: ConceptTexts | Representations, settings: Sequence[Setting]) -> tuple[str, ...]:
    """Return notes on classes without both groups, on classifiers that did not converge, and on fit warnings."""
    notes = [*_lone_groups(data), *_unsettled(settings), *_not_converged(spec, settings), *_warnings(settings)]
    if spec.head == "saga":
        notes.append(f"The task's classifier stops after {spec.head_epochs} epochs, as the released code does.")
    return tuple(notes)


def _lone_groups(data: ConceptTexts | Representations) -> list[str]:
    y, z = np.asarray(data.labels), np.asarray(data.concepts)
    lone = [str(c) for c in np.unique(y) if len(np.unique(z[y == c])) < 2]
    return [f"Without one of the two groups, and so left out of TPR gaps: {', '.join(lone)}."] if lone else []


def _unsettled(settings: Sequence[Setting]) -> list[str]:
    epochs = [int(s.concept["epochs"]) for s in settings if not s.concept["settled"]]
    if not epochs:
        return []
    return [f"The concept classifier was still improving after {max(epochs)} epochs, scikit-learn's default limit."]


def _not_converged(spec: StudySpec, settings: Sequence[Setting]) -> list[str]:
    if spec.head != "converged":
        return []
    short = [m.method for s in settings for m in s.methods if m.facts.get("converged") is False]
    return [f"The task's classifier did not reach its optimum for: {', '.join(dict.fromkeys(short))}."] if short else []


def _warnings(settings: Sequence[Setting]) -> list[str]:
    notes: dict[str, str] = {}
    for setting in settings:
        for result in setting.methods:
            for text in result.facts.get("remarks", []):
                # the same warning with another number is noted once
                notes.setdefault(f"{result.method}: {re.sub('[0-9]', '', text)}", f"{result.method}: {text}")
    return list(notes.values())
