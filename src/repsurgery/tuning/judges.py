"""Who judges: the judge that a search reports, the labeller that its fits follow, and others that took no part."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from repsurgery.datasets import LabelledTexts, hold_out
from repsurgery.errors import DataError, OptionsError, ParameterError
from repsurgery.scorers import load_scorer
from repsurgery.tuning.judge import train_judge

__all__ = ["Judges", "judges_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Judges:
    """The judges of a search.

    Attributes
    ----------
    judge : scorer
        Its measure is raced and reported.
    labeller : scorer
        Labels the model's own texts for the fits. It is the judge itself if that is a scorer; otherwise it is trained
        on other texts than the judge.
    others : tuple of scorers
        They took no part in fits or choices.
    texts : LabelledTexts or None
        The texts to fit on, none of which the judge has seen.
    facts : dict
        What the record says of the judge.
    notes : tuple of str
    """

    judge: Any
    labeller: Any
    others: tuple[Any, ...]
    texts: LabelledTexts | None
    facts: dict[str, Any]
    notes: tuple[str, ...] = field(default=())


def judges_of(
    texts: LabelledTexts | None, scorer: Any, others: Sequence[str], *, source: str, target: str, seed: int
) -> Judges:
    """Return the judges: the scorer where there is one, otherwise judges that are trained on halves of the texts.

    The judge is trained on one half in the representation of a sentence encoder, and its AUC is measured on the other
    half. The labeller is trained on that other half, on which the steerings are fitted as well.
    """
    if texts is not None:
        _require_labels(texts, source, target)
        texts = texts.where([label in (source, target) for label in texts.labels])
    also = tuple(load_scorer(name) for name in others)
    if scorer is not None:
        one = load_scorer(scorer) if isinstance(scorer, str) else scorer
        if getattr(one, "digest", None) is None:
            raise ParameterError(
                "The scorer has no digest, so its scores cannot be stored. Give it the attributes name, version and "
                "digest, or name one of repsurgery.scorers."
            )
        facts = {"name": one.name, "kind": "scorer", "digest": one.digest, "auc": None, "texts": None}
        facts |= {"auc_low": None, "auc_high": None}
        return Judges(one, one, also, texts, facts)
    if texts is None:
        raise OptionsError("There is neither a table of texts nor a scorer. Give texts with two labels, or a scorer.")
    fitted, held_out = hold_out(texts, share=0.5, seed=seed)
    ours, theirs = (fitted.texts, fitted.labels), (held_out.texts, held_out.labels)
    judge = train_judge(*theirs, source=source, held_out=ours)
    labeller = train_judge(*ours, source=source, held_out=theirs)
    notes = []
    if judge.repeated:
        notes.append(
            f"{judge.repeated} texts nearly repeat one that the judge was trained on; its AUC is measured without them."
        )
    try:
        also = (train_judge(*theirs, source=source, held_out=ours, representation="words"), *also)
    except DataError as error:
        notes.append(f"There is no second judge by words: {error}")
    return Judges(judge, labeller, also, fitted, dict(judge.facts()), tuple(notes))


def _require_labels(texts: LabelledTexts, source: str, target: str) -> None:
    if source == target:
        raise ParameterError(f"source and target are both {source!r}; steering needs two labels.")
    labels = ", ".join(f"{label} ({count})" for label, count in texts.counts.items())
    if len(texts.counts) < 2:
        raise DataError(f"The texts have one label only: {labels}. Add texts of a second label to steer to.")
    for name, label in (("source", source), ("target", target)):
        if label not in texts.counts:
            raise ParameterError(
                f"{name} is {label!r}; the labels of the texts are {labels}. Name the label to steer from as source, "
                "and the label to steer to as target."
            )
