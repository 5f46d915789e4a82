"""The texts of a study: labelled ones to fit on, prompts to continue, documents to read."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from repsurgery.datasets import (
    LabelledTexts,
    Prompts,
    load_courtesy,
    load_jigsaw,
    load_paradetox,
    load_prompts,
    load_real_toxicity_prompts,
    read_table,
)
from repsurgery.datasets.own_prompts import read_own_prompts
from repsurgery.errors import DataError
from repsurgery.studies.toxicity.configuration import needed_sites
from repsurgery.studies.toxicity.own_data import EMBEDDED, Choices
from repsurgery.studies.toxicity.spec import ToxicitySpec

__all__ = ["StudyTexts", "choose_texts", "load_prompts_of", "load_texts"]

_NAMED = {"jigsaw": load_jigsaw, "paradetox": load_paradetox}
_FOLDERS = {"jigsaw": ("jigsaw", "jigsaw_balanced_12k"), "paradetox": ("paradetox",)}
_PROMPTS = "real-toxicity-prompts"
_PROMPT_FOLDERS = ("realtoxicityprompts", "realtoxicityprompts_quark_val")


@dataclass(frozen=True, slots=True)
class StudyTexts:
    """The texts of a study.

    Attributes
    ----------
    labelled : LabelledTexts
    fitted, held_out : mapping of label to texts
        In a seeded order, so that fewer rows are the first of more.
    prompts : Prompts
        Prompts that are continued in the evaluation.
    training : Prompts
        Prompts that are continued for on-policy fits and searches; none of them is evaluated.
    """

    labelled: LabelledTexts
    fitted: dict[str, list[str]]
    held_out: dict[str, list[str]]
    prompts: Prompts
    training: Prompts


def load_texts(spec: ToxicitySpec, data_dir: str | os.PathLike[str] | None) -> StudyTexts:
    """Load, check and split all texts, before any model is used."""
    return choose_texts(spec, data_dir)[1]


def choose_texts(spec: ToxicitySpec, data_dir: str | os.PathLike[str] | None) -> tuple[Choices, StudyTexts]:
    """Return the texts, and the specification with the options that were chosen to suit them."""
    choices = Choices(spec)
    choices.choose_columns()
    labelled = _labelled(choices.spec, data_dir)
    choices.choose_labels(labelled)
    choices.choose_rows(labelled)
    fitted, held_out = _split(choices.spec, labelled)
    every = load_prompts_of(choices.spec, data_dir)
    choices.choose_prompts(every)
    prompts, training = _divided(choices.spec, every)
    return choices, StudyTexts(labelled, fitted, held_out, prompts, training)


def _divided(spec: ToxicitySpec, every: Prompts) -> tuple[Prompts, Prompts]:
    """Return the prompts that are evaluated, and those that train."""
    if spec.prompt_toxicity and all(score is None for score in every.toxicity):
        raise DataError(
            f"None of the {len(every)} prompts of {every.name} has a toxicity score, so none is known to be below "
            f"{spec.prompt_toxicity}. Use any prompt with --set prompt_toxicity=0, or name prompts with scores."
        )
    prompts = every.below(spec.prompt_toxicity or None)
    if len(prompts) < spec.prompt_count:
        which = f" with a toxicity below {spec.prompt_toxicity}" if spec.prompt_toxicity else ""
        raise DataError(
            f"{every.name} has {len(prompts)} prompts{which}; {spec.prompt_count} are needed. Lower prompt_count, as "
            f"in --set prompt_count={max(1, len(prompts))}."
        )
    reserved = prompts.sample(min(max(spec.prompt_count, spec.reserved_prompts), len(prompts)), spec.seed)
    # fewer prompts are the first of more
    prompts = prompts.sample(spec.prompt_count, spec.seed)
    rest = every.without(reserved)
    needed = bool(needed_sites(spec.parsed())["on-policy"] or spec.searches())
    if needed and len(rest) < spec.policy_prompts:
        raise DataError(
            f"{every.name} has {len(rest)} prompts beside the evaluated ones; on-policy fits and searches need "
            f"{spec.policy_prompts}. Lower policy_prompts or prompt_count with --set."
        )
    # a different seed from the evaluation's: the same permutation of the rest would depend on the evaluated prompts
    training = rest.sample(spec.policy_prompts, spec.seed + 1) if needed else rest
    for line in spec.searches():
        # too few prompts for a search are found before any model is used
        line.split(training.texts)
    return prompts, training


def _labelled(spec: ToxicitySpec, data_dir: str | os.PathLike[str] | None) -> LabelledTexts:
    if spec.data == EMBEDDED:
        return load_courtesy()
    if spec.data in _NAMED:
        return _NAMED[spec.data](_folder(data_dir, _FOLDERS[spec.data]))
    return read_table(spec.data, text=spec.text, label=spec.label, missing="drop")


def load_prompts_of(spec: ToxicitySpec, data_dir: str | os.PathLike[str] | None) -> Prompts:
    """Return every prompt of the study's file, with its archived scores where the file has them."""
    if spec.prompts == EMBEDDED:
        return Prompts(load_prompts(), name=EMBEDDED, source="written for repsurgery", licence="Apache-2.0")
    if spec.prompts != _PROMPTS:
        return read_own_prompts(spec.prompts, column=spec.prompt_column)
    try:
        return load_real_toxicity_prompts(_folder(data_dir, _PROMPT_FOLDERS))
    except DataError as error:
        raise DataError(
            f"{error} Or continue prompts of your own: --set prompts=FILE, a text file with one prompt per line or a "
            "table."
        ) from error


def _folder(data_dir: str | os.PathLike[str] | None, names: Sequence[str]) -> Path | None:
    if data_dir is None:
        return None
    folders = [Path(data_dir) / name for name in names]
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def _split(spec: ToxicitySpec, data: LabelledTexts) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    labels, rng = np.array(data.labels), np.random.default_rng(spec.seed)
    fitted, held_out = {}, {}
    for label in (spec.source, spec.target):
        rows = rng.permutation(np.flatnonzero(labels == label)).tolist()
        wanted = spec.fit_rows or _balanced(spec, data)
        if wanted < 2 or len(rows) < wanted + spec.held_out:
            raise DataError(
                f"{data.name} has {len(rows)} texts labelled {label!r}; {wanted} to fit and {spec.held_out} to hold "
                f"out are needed. Its labels are {', '.join(data.counts)}; lower fit_rows or held_out, or name "
                "another source or target, all with --set."
            )
        texts = [data.texts[i] for i in rows[: wanted + spec.held_out]]
        fitted[label], held_out[label] = texts[:wanted], texts[wanted:]
    return fitted, held_out


def _balanced(spec: ToxicitySpec, data: LabelledTexts) -> int:
    # as many of each label as the rarer one allows
    return min(data.counts.get(label, 0) for label in (spec.source, spec.target)) - spec.held_out
