"""Perplexity of whole documents, unsteered and under several steerings, as lm-evaluation-harness computes it."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from repsurgery.arrays import check_integer
from repsurgery.errors import NonFiniteError, ParameterError, TextError
from repsurgery.lm.batching.batches import evaluating, run_batches, sorted_batches
from repsurgery.lm.batching.tokens import check_texts, context_length
from repsurgery.lm.score.final_states import final_rows, final_steering, moved_rows
from repsurgery.lm.score.output_layer import OutputLayer
from repsurgery.lm.score.windows import Window, document_tokens, prefix_token, rolling_windows
from repsurgery.lm.sites.wrappers import unwrapped, virtual_tokens
from repsurgery.lm.steer.placement import Placement
from repsurgery.lm.steer.placing import placements, sites_of
from repsurgery.lm.steer.positions import Texts, span
from repsurgery.lm.steer.row_steering import RowSteering
from repsurgery.lm.steer.steer import steer
from repsurgery.lm.steer.texts import require_known

__all__ = ["DocumentPerplexity", "document_perplexity"]

IN_WINDOWS = "Every token but the first of each window counts as generated, as if the first were the prompt."
WINDOWS = Texts(
    1,
    "A document has no prompt and no turns. Measure it with positions='all' or 'generated', or score prompts and "
    "continuations with lm.log_likelihoods.",
    refused=("prompt", "last", "assistant"),
)
"""What is known of the windows of documents."""


@dataclass(frozen=True, slots=True)
class DocumentPerplexity:
    """Log-likelihoods of documents under one model, and the perplexities they imply.

    Attributes
    ----------
    log_likelihoods : tuple of float
        log p(document) of each document, in nats and in order.
    tokens : int
        The number of predicted tokens.
    words, bytes : int
        The units of the perplexities.
    note : str
        What was taken for granted of a steering that acts at some positions only; empty otherwise.
    """

    log_likelihoods: tuple[float, ...]
    tokens: int
    words: int
    bytes: int
    note: str = ""

    @property
    def log_likelihood(self) -> float:
        """The sum over documents."""
        return math.fsum(self.log_likelihoods)

    @property
    def word_perplexity(self) -> float:
        """exp(-log p / words)."""
        return _exp(-self.log_likelihood / self.words)

    @property
    def byte_perplexity(self) -> float:
        """exp(-log p / bytes)."""
        return _exp(-self.log_likelihood / self.bytes)

    @property
    def bits_per_byte(self) -> float:
        """-log₂ p / bytes."""
        return -self.log_likelihood / self.bytes / math.log(2)


def document_perplexity(
    model: nn.Module,
    tokenizer: Any,
    documents: Sequence[str],
    steerings: Mapping[str, Any],
    *,
    words: int | None = None,
    bytes: int | None = None,  # noqa: A002 - the unit's own name, beside words
    max_length: int | None = None,
    batch_size: int = 1,
    progress: bool = True,
) -> dict[str, DocumentPerplexity]:
    """Return the perplexity of ``documents`` under each steering, by name.

    Documents are read in windows of ``max_length`` tokens (see `rolling_windows`), and every position is steered. For a
    steering of generated tokens, every token of a window but the first counts as generated, which its ``note`` says; a
    steering of prompts has no price on documents and is refused. Steerings that act at "final" alone share one pass:
    its states are computed once, and each steering costs its map and the output layer, on the vectors that it moves.

    Parameters
    ----------
    model, tokenizer
        A transformers decoder and its tokenizer; neither is changed.
    documents : sequence of n strings
        In the form in which the model reads them.
    steerings : mapping of name to None, or to what `steer` takes
        None is the unsteered model. A steering without a site acts at "final"; strength and positions are those of each
        placement or origin.
    words, bytes : int or None
        The number of words and bytes of the original documents, where the given ones were rewritten; None counts them
        in the given documents, with words separated by white space.
    max_length : int or None
        Tokens per window; None uses the whole context. The cost of attention grows with its square, and perplexities
        of different lengths are not comparable.
    batch_size : int
        Windows per pass; halved, with a warning, if memory is exhausted.
    progress : bool

    Guarantees
    ----------
    Equal to the harness's ``loglikelihood_rolling`` (test_native_and_harness_agree).
    Equal to one steered pass for each steering (test_the_shared_pass_equals_a_pass_for_each).
    """
    texts = check_texts(documents, caller="document_perplexity")
    if virtual_tokens(model):
        raise ParameterError(
            "document_perplexity runs a model without its PEFT wrapper, which holds the virtual tokens of this one. "
            "Use lm.log_likelihoods, which runs the whole model."
        )
    inner = unwrapped(model)
    head = OutputLayer(inner)
    shared, separate, notes = _by_cost(inner, steerings)
    limit = context_length(inner, tokenizer)
    length = limit if max_length is None else max_length
    if isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= limit:
        raise ParameterError(f"max_length is {max_length!r}; this model reads 1 to {limit} tokens.")
    owners, windows = _windows(tokenizer, texts, length)
    counts = (
        sum(len(window.targets) for window in windows),
        sum(len(re.split(r"\s+", text)) for text in texts) if words is None else check_integer("words", words),
        sum(len(text.encode("utf-8")) for text in texts) if bytes is None else check_integer("bytes", bytes),
    )
    sums = {name: [0.0] * len(texts) for name in steerings}

    def add(name: str, batch: list[int], values: torch.Tensor) -> None:
        parts = torch.split(values.double(), [len(windows[i].targets) for i in batch])
        for i, part in zip(batch, parts, strict=True):
            sums[name][owners[i]] += float(part.sum())

    def run(batch: list[int]) -> None:
        chosen = [windows[i] for i in batch]
        inputs = [list(window.inputs) for window in chosen]
        counted = [slice(len(window.inputs) - len(window.targets), len(window.inputs)) for window in chosen]
        targets = torch.tensor([token for window in chosen for token in window.targets])
        results: dict[str, torch.Tensor] = {}
        if shared:
            rows = final_rows(inner, tokenizer, inputs, counted, WINDOWS)
            base = head.log_likelihoods(rows, targets)
            for name, steering in shared.items():
                results[name] = base if steering is None else _moved(head, rows, targets, base, steering)
        for name, placed in separate.items():
            with steer(inner, placed):
                rows = final_rows(inner, tokenizer, inputs, counted, WINDOWS)
            results[name] = head.log_likelihoods(rows, targets)
        # added only when the whole batch is done, because a batch beyond memory is run again in halves
        for name, values in results.items():
            add(name, batch, _finite(values, name))

    with evaluating(inner):
        batches = sorted_batches([len(window.inputs) for window in windows], batch_size)
        run_batches(batches, run, progress=progress, label="reading documents")
    return {name: DocumentPerplexity(tuple(values), *counts, notes[name]) for name, values in sums.items()}


def _by_cost(
    model: nn.Module, steerings: Mapping[str, Any]
) -> tuple[dict[str, RowSteering | None], dict[str, Sequence[Placement]], dict[str, str]]:
    """Return the steerings that act on final states alone, those that need a pass of their own, and notes on each."""
    if not isinstance(steerings, Mapping) or not steerings:
        raise ParameterError(
            f"document_perplexity got {type(steerings).__name__} for steerings; it takes a mapping of names such as "
            "{'base': None, 'mine': {'final': steering}}, and at least one."
        )
    shared: dict[str, RowSteering | None] = {}
    separate: dict[str, Sequence[Placement]] = {}
    notes = dict.fromkeys(steerings, "")
    for name, value in steerings.items():
        if value is None:
            shared[name] = None
            continue
        if isinstance(value, Mapping) and not value:
            raise ParameterError(f"The steering {name!r} names no site. Give {{'final': steering}}, or None.")
        placed = placements(model, sites_of(value), strength=None, positions=None)
        require_known(placed, WINDOWS, caller="document_perplexity")
        if any(p.positions != "all" for p in placed):
            notes[name] = IN_WINDOWS
        at_final = final_steering(model, placed)
        if at_final is not None and span(placed[0].positions, WINDOWS.prompts) == span("all", WINDOWS.prompts):
            shared[name] = at_final
        else:
            separate[name] = placed
    return shared, separate, notes


def _windows(tokenizer: Any, texts: list[str], length: int) -> tuple[list[int], list[Window]]:
    prefix = prefix_token(tokenizer)
    owners: list[int] = []
    windows: list[Window] = []
    for i, text in enumerate(texts):
        tokens = document_tokens(tokenizer, text, prefix)
        if not tokens:
            raise TextError(f"document_perplexity got a document without tokens at index {i}: {text[:40]!r}. Drop it.")
        cut = rolling_windows(tokens, prefix, length)
        owners += [i] * len(cut)
        windows += cut
    return owners, windows


def _moved(
    head: OutputLayer, rows: torch.Tensor, targets: torch.Tensor, base: torch.Tensor, steering: RowSteering
) -> torch.Tensor:
    steered = steering(rows)
    moved = moved_rows(rows, steered)
    if len(moved) == len(rows):
        return head.log_likelihoods(steered, targets)
    # rows that did not change keep their predictions
    values = base.clone()
    values[moved.to(values.device)] = head.log_likelihoods(steered[moved], targets[moved.to(targets.device)])
    return values


def _finite(values: torch.Tensor, name: str) -> torch.Tensor:
    if not bool(torch.isfinite(values).all()):
        raise NonFiniteError(
            f"Under {name!r} a document has logits beyond the model's number range. Lower the strength, or run the "
            "model in a wider dtype."
        )
    return values


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf
