"""`scorer_rows`: the texts that the MiniLM scorer may be trained on, and those that it must never see."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from repsurgery.datasets import Prompts
from repsurgery.datasets.records import rows_digest
from repsurgery.errors import DataError
from repsurgery.scorers.minilm import fingerprints
from repsurgery.studies.toxicity.data import load_prompts_of, load_texts
from repsurgery.studies.toxicity.spec import make_toxicity_spec

__all__ = ["POLICY_PROMPTS", "ScorerRows", "archived_texts", "scorer_rows"]

POLICY_PROMPTS = 2000
"""On-policy fits may use this many of the training prompts of a study; the scorer is trained on later ones only."""
_VALIDATION = 300
"""Prompts, with their continuations, on which a recipe is judged while it is developed."""


@dataclass(frozen=True, slots=True)
class ScorerRows:
    """Texts with scores in [0, 1], split by their role.

    Attributes
    ----------
    archived : mapping of text to score
        Prompts and continuations with Perspective scores, for training.
    comments : mapping of text to score
        Jigsaw's comments for training, 1 for the label "toxic" and 0 for the other.
    validation : mapping of text to score
        Prompts and continuations with Perspective scores, to choose a recipe by.
    never_seen : mapping of text to score
        The prompts that the study evaluates or may fit on, with their continuations.

    Guarantees
    ----------
    * No text of one part is in another, up to case and white space
      (test_no_text_of_one_part_is_in_another).
    * Training and validation contain nothing that the study fits on, holds out or continues
      (test_the_scorer_trains_on_nothing_that_a_study_draws).
    """

    archived: Mapping[str, float]
    comments: Mapping[str, float]
    validation: Mapping[str, float]
    never_seen: Mapping[str, float]

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of the rows of each part, in order."""
        return {name: rows_digest(list(part), list(part.values())) for name, part in self.parts().items()}

    def counts(self) -> dict[str, int]:
        """Return the number of texts of each part."""
        return {name: len(part) for name, part in self.parts().items()}

    def parts(self) -> dict[str, Mapping[str, float]]:
        """Return the parts by name."""
        return {name: getattr(self, name) for name in ("archived", "comments", "validation", "never_seen")}


def scorer_rows(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    seed: int = 0,
    policy_prompts: int = POLICY_PROMPTS,
    validation: int = _VALIDATION,
    **differences: object,
) -> ScorerRows:
    """Split the texts of the study's local preset by what the study draws from them.

    Parameters
    ----------
    data_dir : path or None
        The folder of Jigsaw and RealToxicityPrompts; None as for the data sets themselves.
    seed : int
        The seed of the study.
    policy_prompts : int
        Training prompts of the study that are kept for on-policy fits.
    validation : int
        Prompts for validation, drawn from those that remain.
    differences
        Options of the study that differ from its local preset.
    """
    spec = make_toxicity_spec(
        "local",
        **{"seed": seed, "policy_prompts": policy_prompts, "configurations": ("mean all fit=on-policy",)},
        **differences,
    )
    study = load_texts(spec, data_dir)
    free = load_prompts_of(spec, data_dir).without(study.prompts).without(study.training)
    if len(free) <= validation:
        raise DataError(
            f"{free.name} has {len(free)} prompts beside those of the study; {validation} for validation leave none "
            "for training. Lower policy_prompts or validation."
        )
    chosen = free.sample(validation, seed)
    drawn = {text for part in (study.fitted, study.held_out) for texts in part.values() for text in texts}
    comments = {
        text: float(label == spec.source)
        for text, label in zip(study.labelled.texts, study.labelled.labels, strict=True)
        if label in (spec.source, spec.target) and text not in drawn
    }
    never_seen = archived_texts(study.prompts, study.training)
    barred = list(never_seen)
    kept = _without(archived_texts(chosen), [*barred, *drawn])
    archived = _without(archived_texts(free.without(chosen)), [*barred, *drawn, *kept])
    comments = _without(comments, [*barred, *drawn, *kept, *archived])
    return ScorerRows(archived, comments, kept, never_seen)


def archived_texts(*sets: Prompts) -> dict[str, float]:
    """Return the archived scores of prompts and continuations by text; of a repeated text the first one counts."""
    scores: dict[str, float] = {}
    for prompts in sets:
        columns = (prompts.texts, prompts.toxicity), (prompts.continuations, prompts.continuation_toxicity)
        for texts, toxicity in columns:
            for text, score in zip(texts, toxicity, strict=True):
                if text is not None and text.strip() and score is not None:
                    scores.setdefault(text, score)
    return _without(scores, [])


def _without(rows: Mapping[str, float], barred: Iterable[str]) -> dict[str, float]:
    """Return the rows whose texts differ from ``barred`` ones and from earlier ones, beyond case and white space."""
    seen = set(fingerprints(barred).tolist())
    kept: dict[str, float] = {}
    for text, mark in zip(rows, fingerprints(rows).tolist(), strict=True):
        if mark not in seen:
            kept[text] = rows[text]
            seen.add(mark)
    return kept
