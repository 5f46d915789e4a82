"""What steering costs elsewhere: the perplexity of documents, and the divergence from the base on neutral text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from repsurgery import lm
from repsurgery.checkpoint import journal_of
from repsurgery.datasets import Documents
from repsurgery.lm.score.perplexity import DocumentPerplexity
from repsurgery.lm.twins import Twin
from repsurgery.studies.toxicity.writing import Steered, model_identity

__all__ = ["divergences", "document_perplexities"]


def document_perplexities(
    twin: Twin,
    documents: Documents,
    steerings: Mapping[str, Steered | None],
    *,
    length: int,
    folder: Path,
    progress: bool,
) -> dict[str, DocumentPerplexity]:
    """Return the perplexity of the documents under each steering; what is known from before is not read again."""
    identity = {**model_identity(twin), "documents": documents.digest, "length": length}
    journal = journal_of(folder, "documents", identity)
    waiting = {name: steered for name, steered in steerings.items() if _key(steered) not in journal}
    if waiting:
        found = lm.document_perplexity(
            twin.model,
            twin.tokenizer,
            documents.detokenised,
            {name: _at_site(steered) for name, steered in waiting.items()},
            words=documents.words,
            bytes=documents.bytes,
            max_length=length,
            progress=progress,
        )
        journal.note({_key(waiting[name]): list(_plain(one)) for name, one in found.items()})
    known = {name: journal[_key(steered)] for name, steered in steerings.items()}
    return {name: DocumentPerplexity(tuple(sums), *counts) for name, (sums, *counts) in known.items()}


def divergences(
    twin: Twin, texts: tuple[str, ...], steerings: Mapping[str, Steered], *, folder: Path
) -> dict[str, float]:
    """Return the mean KL(steered ‖ base) over the tokens of ``texts`` under each steering."""
    journal = journal_of(folder, "divergence", {**model_identity(twin), "texts": list(texts)})
    for steered in steerings.values():
        if _key(steered) not in journal:
            found = lm.kl_divergence(twin.model, twin.tokenizer, texts, _at_site(steered), progress=False)
            journal.note({_key(steered): float(np.mean([value for text in found for value in text.values]))})
    return {name: journal[_key(steered)] for name, steered in steerings.items()}


def _at_site(steered: Steered | None) -> dict[str, Any] | None:
    return None if steered is None else {steered.site: steered.function}


def _key(steered: Steered | None) -> str:
    return "base" if steered is None else steered.key


def _plain(one: DocumentPerplexity) -> tuple[list[float], int, int, int]:
    return list(one.log_likelihoods), one.tokens, one.words, one.bytes
