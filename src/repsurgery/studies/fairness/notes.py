"""What a reader must know to judge the numbers of a study."""

import re
from collections.abc import Sequence

import numpy as np

from repsurgery.datasets import ConceptTexts, Representations
from repsurgery.studies.fairness.record import Setting
from repsurgery.studies.fairness.spec import StudySpec

__all__ = ["study_notes"]


def study_notes(spec: StudySpec, data: ConceptTexts | Representations, settings: Sequence[Setting]) -> tuple[str, ...]:
    """Return notes on classes without both groups, on classifiers that did not converge, and on fit warnings."""
    found = [*_lone_groups(data), *_unsettled(settings), *_not_converged(spec, settings), *_remarks(settings)]
    if spec.head == "saga":
        found.append(f"The task's classifier stops after {spec.head_epochs} epochs, as the released code does.")
    return tuple(found)


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


def _remarks(settings: Sequence[Setting]) -> list[str]:
    found: dict[str, str] = {}
    for setting in settings:
        for result in setting.methods:
            for remark in result.facts.get("remarks", []):
                # the same remark with another number is said once
                found.setdefault(f"{result.method}: {re.sub('[0-9]', '', remark)}", f"{result.method}: {remark}")
    return list(found.values())
