"""Perplexity of whole documents, untouched and under several steerings, as lm-evaluation-harness computes it."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from repsurgery.errors import NonFiniteError, ParameterError, TextError
from repsurgery.lm.batching import entry_device, evaluating, run_batches
from repsurgery.lm.score.output_layer import OutputLayer
from repsurgery.lm.score.windows import Window, document_tokens, prefix_token, rolling_windows
from repsurgery.lm.sites.names import reading_model, unwrapped
from repsurgery.lm.sites.wrappers import virtual_tokens
from repsurgery.lm.steer.placing import placed, sites_of
from repsurgery.lm.steer.row_steering import RowSteering
from repsurgery.lm.steer.steer import prepare, steer
from repsurgery.lm.texts import check_texts, context_length, pad, pad_id, sorted_batches

__all__ = ["DocumentPerplexity", "document_perplexity"]

Sites = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DocumentPerplexity:
    """How well a model predicts documents.

    Attributes
    ----------
    log_likelihoods : tuple of float
        log p(document) of each, in nats and in order.
    tokens : int
        How many tokens were predicted.
    words, bytes : int
        What the perplexities are taken per.
    """

    log_likelihoods: tuple[float, ...]
    tokens: int
    words: int
    bytes: int

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

    Documents are read in windows of ``max_length`` tokens as `rolling_windows` cuts them, every position steered unless
    the origin of a steering asks for others.
    What steers "final" alone needs no pass of its own: its states are computed once for all such steerings, and each
    costs its map and the output layer, on the vectors that it moves.

    Parameters
    ----------
    model, tokenizer
        A transformers decoder and its tokenizer; neither is changed.
    documents : sequence of n strings
        As the model is to read them.
    steerings : mapping of name to None, a mapping of site to steering, or one steering for its own site, else "final"
        None is the model as it stands. See `steer`; strength and positions are those of each origin.
    words, bytes : int or None
        Of the original documents, where those given here were rewritten; None counts in the documents given, words
        between white space.
    max_length : int or None
        Tokens of a window; None is the context. Attention costs its square, and a figure holds for its length alone.
    batch_size : int
        Windows at once; halved, with a warning, where memory ends.
    progress : bool

    Guarantees
    ----------
    Equal to the harness's ``loglikelihood_rolling`` (test_native_and_harness_agree).
    Equal to one steered pass for each steering (test_the_shared_pass_equals_a_pass_for_each).
    """
    texts = check_texts(documents, caller="document_perplexity")
    if virtual_tokens(model):
        raise ParameterError(
            "document_perplexity reads a model without its PEFT wrapper, and this one's virtual tokens live there. "
            "Use lm.log_likelihoods, which reads the whole of it."
        )
    inner = unwrapped(model)
    head = OutputLayer(inner)
    shared, alone = _sorted_out(inner, steerings)
    limit = context_length(inner, tokenizer)
    length = limit if max_length is None else max_length
    if isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= limit:
        raise ParameterError(f"max_length is {max_length!r}; this model reads 1 to {limit} tokens.")
    owners, windows = _windows(tokenizer, texts, length)
    counts = (
        sum(len(window.targets) for window in windows),
        sum(len(re.split(r"\s+", text)) for text in texts) if words is None else _count("words", words),
        sum(len(text.encode("utf-8")) for text in texts) if bytes is None else _count("bytes", bytes),
    )
    found = {name: [0.0] * len(texts) for name in steerings}

    def add(name: str, batch: list[int], values: torch.Tensor) -> None:
        parts = torch.split(values.double(), [len(windows[i].targets) for i in batch])
        for i, part in zip(batch, parts, strict=True):
            found[name][owners[i]] += float(part.sum())

    def run(batch: list[int]) -> None:
        chosen = [windows[i] for i in batch]
        targets = torch.tensor([token for window in chosen for token in window.targets])
        results: dict[str, torch.Tensor] = {}
        if shared:
            rows = _final_rows(inner, tokenizer, chosen)
            base = head.log_likelihoods(rows, targets)
            for name, steering in shared.items():
                results[name] = base if steering is None else _moved(head, rows, targets, base, steering)
        for name, sites in alone.items():
            with steer(inner, sites):
                rows = _final_rows(inner, tokenizer, chosen)
            results[name] = head.log_likelihoods(rows, targets)
        # added up only when the whole batch is done: one beyond memory is run again in halves
        for name, values in results.items():
            add(name, batch, _finite(values, name))

    with evaluating(inner):
        batches = sorted_batches([len(window.inputs) for window in windows], batch_size)
        run_batches(batches, run, progress=progress, label="reading documents")
    return {name: DocumentPerplexity(tuple(values), *counts) for name, values in found.items()}


def _sorted_out(
    model: nn.Module, steerings: Mapping[str, Any]
) -> tuple[dict[str, RowSteering | None], dict[str, Sites]]:
    """Return what acts on final states alone, and what needs a pass of its own; all of it checked."""
    if not isinstance(steerings, Mapping) or not steerings:
        raise ParameterError(
            f"document_perplexity got {type(steerings).__name__} for steerings; it takes a mapping of names such as "
            "{'base': None, 'mine': {'final': steering}}, and at least one."
        )
    shared: dict[str, RowSteering | None] = {}
    alone: dict[str, Sites] = {}
    for name, value in steerings.items():
        if value is None:
            shared[name] = None
            continue
        if isinstance(value, Mapping) and not value:
            raise ParameterError(f"The steering {name!r} names no site. Give {{'final': steering}}, or None.")
        places = placed(model, sites_of(value), strength=None, positions=None)
        ready = [prepare(model, p.site, p.steering, p.strength)[1] for p in places]
        if [(p.site, p.positions) for p in places] == [("final", "all")]:
            shared[name] = ready[0]
        else:
            alone[name] = {p.site: p.steering for p in places}
    return shared, alone


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


def _final_rows(model: nn.Module, tokenizer: Any, windows: list[Window]) -> torch.Tensor:
    """Return the states (n, d) that predict the windows' targets, in order."""
    ids, mask = pad([list(window.inputs) for window in windows], token=pad_id(model, tokenizer), side="right")
    device = entry_device(model)
    output = reading_model(model)(input_ids=ids.to(device), attention_mask=mask.to(device), use_cache=False)
    states: torch.Tensor = output.last_hidden_state
    parts = [
        row[len(window.inputs) - len(window.targets) : len(window.inputs)]
        for row, window in zip(states, windows, strict=True)
    ]
    return torch.cat(parts)


def _moved(
    head: OutputLayer, rows: torch.Tensor, targets: torch.Tensor, base: torch.Tensor, steering: RowSteering
) -> torch.Tensor:
    steered = steering(rows)
    moved = (steered != rows).any(dim=1)
    if bool(moved.all()):
        return head.log_likelihoods(steered, targets)
    # a row that the gate left alone predicts what it predicted before
    values = base.clone()
    values[moved.to(values.device)] = head.log_likelihoods(steered[moved], targets[moved.to(targets.device)])
    return values


def _finite(values: torch.Tensor, name: str) -> torch.Tensor:
    if not bool(torch.isfinite(values).all()):
        raise NonFiniteError(
            f"Under {name!r} a document meets logits beyond the model's number range. Lower the strength, or run the "
            "model in a wider dtype."
        )
    return values


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ParameterError(f"{name} is {value!r}; it must be a whole number of at least 1.")
    return value


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf
