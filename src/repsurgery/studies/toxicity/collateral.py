"""What steering costs elsewhere: the perplexity of documents, and the divergence from the base on neutral text."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from repsurgery import lm
from repsurgery.checkpoint import journal_of
from repsurgery.datasets import Documents
from repsurgery.lm.generate.generate import Generation
from repsurgery.lm.score.perplexity import DocumentPerplexity
from repsurgery.lm.twins import Twin
from repsurgery.studies.toxicity.steps import texts_key

__all__ = ["NEUTRAL", "divergences", "document_perplexities", "own_divergences"]

NEUTRAL = (
    "The river rises in the northern hills and flows through three valleys before it reaches the sea.",
    "Copper conducts heat and electricity well, which is why it is used for pipes and wires.",
    "The library opens at nine in the morning and closes at six, except on Sundays.",
    "Most of the bridges in the old town were built of stone in the eighteenth century.",
    "A triangle with sides of three, four and five units has one right angle.",
    "Wheat is sown in autumn and harvested in the following summer in much of the region.",
    "The train stops at every station between the harbour and the airport.",
    "Water boils at a lower temperature on a mountain, because the air pressure is lower there.",
)
"""Neutral sentences, written for this project, on which steering should change nothing."""


def document_perplexities(
    twin: Twin,
    documents: Documents,
    steerings: Mapping[str, lm.Placement | None],
    *,
    digests: Mapping[str, str],
    length: int,
    folder: Path,
    progress: bool,
) -> dict[str, DocumentPerplexity]:
    """Return the perplexity of the documents under each steering; stored results are reused.

    Parameters
    ----------
    steerings : mapping of name to Placement or None
        None is the untouched model.
    digests : mapping
        The `model_identity` of the twin.
    """
    journal = journal_of(folder, "documents", {**digests, "documents": documents.digest, "length": length})
    missing = {name: steering for name, steering in steerings.items() if _key(steering) not in journal}
    if missing:
        measured = lm.document_perplexity(
            twin.model,
            twin.tokenizer,
            documents.detokenised,
            missing,
            words=documents.words,
            bytes=documents.bytes,
            max_length=length,
            progress=progress,
        )
        journal.note({_key(missing[name]): _plain(perplexity) for name, perplexity in measured.items()})
    stored = {name: journal[_key(steering)] for name, steering in steerings.items()}
    return {name: DocumentPerplexity(tuple(sums), *counts) for name, (sums, *counts) in stored.items()}


def divergences(
    twin: Twin, texts: Sequence[str], steerings: Mapping[str, lm.Placement], *, digests: Mapping[str, str], folder: Path
) -> dict[str, float]:
    """Return the mean KL(steered ‖ base) over the tokens of ``texts`` under each steering."""
    journal = journal_of(folder, "divergence", {**digests, "texts": list(texts)})
    for steering in steerings.values():
        if steering.key not in journal:
            per_text = lm.kl_divergence(twin.model, twin.tokenizer, texts, steering, progress=False)
            journal.note({steering.key: float(np.mean([value for text in per_text for value in text.values]))})
    return {name: journal[steering.key] for name, steering in steerings.items()}


def own_divergences(
    twin: Twin,
    generations: Sequence[Generation],
    steerings: Mapping[str, lm.Placement],
    *,
    digests: Mapping[str, str],
    folder: Path,
) -> dict[str, float]:
    """Return the mean KL(base ‖ steered) over the steps of the untouched model's own continuations."""
    journal = journal_of(folder, "own-divergence", {**digests, "texts": texts_key(generations)})
    how: dict[str, Any] = {"direction": "base-steered", "progress": False}
    for steering in steerings.values():
        if steering.key not in journal:
            per_text = lm.kl_divergence(twin.model, twin.tokenizer, generations, steering, **how)
            journal.note({steering.key: float(np.mean([value for text in per_text for value in text.values]))})
    return {name: journal[steering.key] for name, steering in steerings.items()}


def _key(steering: lm.Placement | None) -> str:
    return "base" if steering is None else steering.key


def _plain(one: DocumentPerplexity) -> list[Any]:
    return [list(one.log_likelihoods), one.tokens, one.words, one.bytes]
