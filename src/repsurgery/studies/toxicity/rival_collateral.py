"""What a rival costs elsewhere, where it changes the likelihoods of the study's model and not only the sampling."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from repsurgery import lm
from repsurgery.checkpoint import digest, journal_of
from repsurgery.datasets import Documents
from repsurgery.lm.batching.batches import evaluating
from repsurgery.lm.batching.tokens import Tokens, encode
from repsurgery.lm.generate.generate import Generation, predicting_positions, prompt_lengths
from repsurgery.lm.score.likelihood import logits_of
from repsurgery.lm.score.output_layer import divergences
from repsurgery.lm.steer.texts import NO_PROMPTS
from repsurgery.studies.toxicity.generators import TextGenerator
from repsurgery.studies.toxicity.steps import texts_key

__all__ = ["rival_collateral"]

AT_ONCE = 4
"""Texts whose logits are in memory at once, under the base and under the rival."""
Figures = dict[str, float]
"""Measures by their names in the record."""


def rival_collateral(
    rival: TextGenerator,
    *,
    neutral: Sequence[str],
    own: Sequence[Generation],
    documents: Documents | None,
    length: int,
    folder: Path,
    progress: bool,
) -> dict[str, float]:
    """Return "kl", "kl.own" and the perplexities of WikiText under the rival; nothing if it has no likelihoods.

    Stored figures are reused.

    Parameters
    ----------
    rival : TextGenerator
        See `TextGenerator.likelihood_model`.
    neutral, own, documents
        Texts, continuations of the base, and documents, as for steerings; there may be no texts and no documents.
    length : int
        Tokens in one window of a document.

    Guarantees
    ----------
    Equal to the figures of the same steering (test_a_steering_as_a_rival_has_the_same_collateral).
    """
    journal = journal_of(folder, "rival-collateral", rival.identity)
    tasks: dict[str, tuple[Any, Callable[[], Figures | None]]] = {
        "kl.own": (texts_key(own), lambda: _own_divergence(rival, own))
    }
    if neutral:
        tasks["kl"] = list(neutral), lambda: _neutral_divergence(rival, neutral)
    if documents is not None:
        how: Any = {"length": length, "progress": progress}
        tasks["wikitext"] = [documents.digest, length], lambda: _perplexities(rival, documents, **how)
    found: Figures = {}
    for name, (inputs, measured) in tasks.items():
        key = digest(name, inputs)
        if key not in journal:
            figures = measured()
            if figures is None:
                return {}
            journal.note({key: figures})
        found |= journal[key]
    return found


def _perplexities(rival: TextGenerator, documents: Documents, *, length: int, progress: bool) -> Figures | None:
    with rival.likelihood_model() as model:
        if model is None:
            return None
        one = lm.document_perplexity(
            model,
            rival.context.tokenizer,
            documents.detokenised,
            {rival.name: None},
            words=documents.words,
            bytes=documents.bytes,
            max_length=length,
            progress=progress,
        )[rival.name]
    return {"wikitext.word_perplexity": one.word_perplexity, "wikitext.byte_perplexity": one.byte_perplexity}


def _neutral_divergence(rival: TextGenerator, texts: Sequence[str]) -> Figures | None:
    """Return the mean KL(rival ‖ base) over the tokens of ``texts``."""
    context = rival.context
    rows = encode(context.model, context.tokenizer, list(texts), max_length=None, caller=rival.name)
    pairs = _logits(rival, rows, [slice(len(row)) for row in rows], None)
    return _mean("kl", [divergences(changed, base) for base, changed in pairs])


def _own_divergence(rival: TextGenerator, generations: Sequence[Generation]) -> Figures | None:
    """Return the mean KL(base ‖ rival) over the steps of the base's own continuations."""
    context = rival.context
    rows, steps = predicting_positions(context.model, context.tokenizer, generations, caller=rival.name)
    pairs = _logits(rival, rows, steps, prompt_lengths(steps))
    return _mean("kl.own", [divergences(base, changed) for base, changed in pairs])


def _mean(name: str, values: list[torch.Tensor]) -> Figures | None:
    return {name: float(torch.cat(values).double().mean())} if values else None


def _logits(
    rival: TextGenerator, rows: Sequence[Tokens], counted: Sequence[slice], prompts: Sequence[int] | None
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the logits (steps, vocabulary) of base and rival at the counted positions of each row; nothing if none."""
    base, tokenizer = rival.context.model, rival.context.tokenizer
    for start in range(0, len(rows), AT_ONCE):
        part = list(rows[start : start + AT_ONCE])
        known = NO_PROMPTS if prompts is None else prompts[start : start + AT_ONCE]
        # the rival may be the base itself, changed inside the block, so that the base is read outside
        with evaluating(base):
            before = logits_of(base, tokenizer, part, known)
        with rival.likelihood_model() as model:
            if model is None:
                return
            with evaluating(model):
                after = logits_of(model, tokenizer, part, known)
        for i, kept in enumerate(counted[start : start + AT_ONCE]):
            yield before[i, kept], after[i, kept]
