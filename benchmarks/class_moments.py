"""`lm.class_moments` at all 30 blocks of SmolLM2 beside the bare forward pass of the same batches."""

import tracemalloc
from functools import partial
from typing import Any

import torch

from benchmarks import smollm2
from benchmarks.clock import interleaved
from benchmarks.lines import Line, Settings, at_most, fact
from repsurgery import lm
from repsurgery.lm.batching.batches import sorted_batches
from repsurgery.lm.batching.tokens import encode, pad, pad_id
from repsurgery.lm.sites.names import reading_model

TARGET = 1.5
SQUARES = 4.0
"""The sum, 2 d rows that wait in float32, and what multiplying a block needs."""
N = 256
BATCH = 32
MIB = 2**20
POOLINGS = ("last", "all")


def run(settings: Settings) -> list[Line]:
    """Measure time by pooling, and memory at two numbers of texts."""
    model, _ = smollm2.loaded()
    n = 16 if settings.quick else N
    sites = [f"layers.{i}" for i in range(model.config.num_hidden_layers)]
    ours = {pooling: partial(_ours, n, sites, pooling) for pooling in POOLINGS}
    rounds = settings.repeats or (2 if settings.quick else 3)
    t = interleaved({"bare": partial(_bare, n), **ours}, rounds=rounds)
    case = f"{len(sites)} sites, {n} texts"
    lines = [fact(f"{case}: bare forward", t.of("bare"), "s", f"{t.results['bare']} tokens, no output layer")]
    for pooling in POOLINGS:
        what = f"{case}, pooling {pooling}: class_moments / bare forward"
        lines.append(at_most(what, t.ratio(pooling, "bare"), TARGET, "x", t.spread(pooling, "bare")))
    return [*lines, *_memory(n, sites)]


def _memory(n: int, sites: list[str]) -> list[Line]:
    model, _ = smollm2.loaded()
    square = 8 * model.config.hidden_size**2
    lines = []
    for texts in (n // 2, n):
        tracemalloc.start()
        found = _ours(texts, sites, "all")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        pairs = sum(map(len, found.values()))
        note = f"{peak / MIB:.0f} MiB in all, {peak / pairs:.0f} bytes each; NumPy's peak"
        what = f"{texts} texts: memory per site and class / d² float64"
        lines.append(at_most(what, peak / pairs / square, SQUARES, "x", note))
    return lines


def _ours(n: int, sites: list[str], pooling: Any) -> dict[str, Any]:
    model, tokenizer = smollm2.loaded()
    texts, labels = smollm2.texts(n)
    options = {"sites": sites, "pooling": pooling, "batch_size": BATCH, "progress": False}
    return lm.class_moments(model, tokenizer, texts, labels, **options)


def _bare(n: int) -> int:
    model, tokenizer = smollm2.loaded()
    tokens = encode(model, tokenizer, smollm2.texts(n)[0], max_length=None, caller="benchmark")
    inner = reading_model(model)
    with torch.no_grad():
        for batch in sorted_batches([len(row) for row in tokens], BATCH):
            ids, mask = pad([tokens[i] for i in batch], token=pad_id(model, tokenizer), side="right")
            inner(input_ids=ids, attention_mask=mask, use_cache=False)
    return sum(map(len, tokens))
