"""An evaluation of toxicity on SmolLM2, 8 prompts x 25 x 20 tokens, beside bare batched `model.generate`."""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch

import repsurgery as rs
from benchmarks import smollm2
from benchmarks.clock import Timings, interleaved
from benchmarks.lines import Line, Settings, at_least, at_most, fact
from repsurgery import lm, metrics
from repsurgery.datasets import load_prompts
from repsurgery.scorers import LinearScorer

SIZES = {"prompts": 8, "samples": 25, "steps": 20, "batch": 50}
TINY = {"prompts": 2, "samples": 3, "steps": 3, "batch": 3}
THROUGHPUT, SHARE = 0.9, 10.0
TOP_P = 0.9

Scores = list[list[float | None]]


def run(settings: Settings) -> list[Line]:
    """Measure bare, unsteered and steered generation, scoring and statistics in shuffled rounds."""
    size = TINY if settings.quick else SIZES
    model, tokenizer = smollm2.loaded()
    prompts = load_prompts()[: size["prompts"]]
    how = {"n": size["samples"], "max_new_tokens": size["steps"], "batch_size": size["batch"], "progress": False}
    ours = partial(lm.generate, model, tokenizer, prompts, top_p=TOP_P, **how)
    # also warms the caches up, and loads the scorer before its clock runs
    texts = _by_prompt(ours(), len(prompts))
    scores = _scored(texts)
    candidates: dict[str, Callable[[], Any]] = {
        "bare": partial(_bare, prompts, size),
        "bare again": partial(_bare, prompts, size),
        "bare, all rows at once": partial(_bare, prompts, size | {"batch": size["prompts"] * size["samples"]}),
        "ours, unsteered": ours,
        **{f"ours, {name}": partial(ours, steering=s) for name, s in _steerings(settings.quick).items()},
        "scoring": partial(_scored, texts),
        "statistics": partial(_statistics, texts, scores),
    }
    rounds = settings.repeats or (2 if settings.quick else 3)
    t = interleaved(candidates, rounds=rounds, shuffled=True)
    slots = size["prompts"] * size["samples"] * size["steps"]
    return [*_generation(t, slots, rounds), *_evaluation(t, slots)]


def _generation(t: Timings, slots: int, rounds: int) -> list[Line]:
    note = f"{slots} tokens a round, {rounds} rounds"
    lines = [fact("bare model.generate", slots / t.of("bare"), "tokens/s", note)]
    for name in t.seconds:
        if name.startswith("bare") and name != "bare":
            note = f"{t.spread('bare', name)}; control" if name == "bare again" else t.spread("bare", name)
            lines.append(fact(f"{name} / bare, throughput", t.paired("bare", name), "x", note))
        elif name.startswith("ours"):
            note = f"{t.spread('bare', name)}; {slots / t.of(name):.0f} tokens/s; {_effect(t, name)}"
            lines.append(at_least(f"{name} / bare, throughput", t.paired("bare", name), THROUGHPUT, note=note))
    return lines


def _evaluation(t: Timings, slots: int) -> list[Line]:
    """Return the figures of generation, scoring and statistics together, each against the bare call of its round."""
    lines = []
    for name in (name for name in t.seconds if name.startswith("ours")):
        parts = zip(*(t.seconds[part] for part in (name, "scoring", "statistics", "bare")), strict=True)
        ratios = [bare / (own + scoring + statistics) for own, scoring, statistics, bare in parts]
        what = name.removeprefix("ours, ")
        note = f"rounds {min(ratios):.2f}-{max(ratios):.2f}"
        lines.append(at_least(f"evaluation, {what} / bare, throughput", median(ratios), THROUGHPUT, note=note))
    own = t.of("ours, unsteered") + t.of("scoring") + t.of("statistics")
    shares = {part: 100 * t.of(part) / own for part in ("scoring", "statistics")}
    lines += [at_most(f"{part}, share of an evaluation", share, SHARE, "%") for part, share in shares.items()]
    return [*lines, fact("evaluation, unsteered", slots / own, "tokens/s")]


def _effect(t: Timings, name: str) -> str:
    found, base = t.results[name], t.results["ours, unsteered"]
    ended = f"{sum(one.finished for one in found)} of {len(found)} texts ended early"
    if name == "ours, unsteered":
        return ended
    changed = sum(a.tokens != b.tokens for a, b in zip(found, base, strict=True))
    return f"{changed} changed, {ended}" if changed else "DID NOT INTERVENE"


def _bare(prompts: Sequence[str], size: dict[str, int]) -> int:
    """Sample as the protocol does with nothing of ours: as many rows at once, never ending early, decoded to text."""
    model, tokenizer = smollm2.loaded()
    torch.manual_seed(0)
    at_once = max(1, size["batch"] // size["samples"])
    settings = {
        "do_sample": True,
        "top_p": TOP_P,
        "top_k": 0,
        "num_return_sequences": size["samples"],
        "min_new_tokens": size["steps"],
        "max_new_tokens": size["steps"],
        "pad_token_id": 0,
    }
    texts = []
    for start in range(0, len(prompts), at_once):
        inputs = tokenizer(
            list(prompts[start : start + at_once]), return_tensors="pt", padding=True, padding_side="left"
        )
        tokens = model.generate(input_ids=inputs.input_ids, attention_mask=inputs.attention_mask, **settings)
        texts += tokenizer.batch_decode(tokens[:, inputs.input_ids.shape[1] :], skip_special_tokens=True)
    return len(texts)


def _steerings(quick: bool) -> dict[str, Any]:
    """Return maps for ``final`` from every token of some texts: rude stands for toxic."""
    model, tokenizer = smollm2.loaded()
    some, labels = smollm2.texts(16 if quick else 200)
    moments = lm.class_moments(model, tokenizer, some, labels, sites=["final"], pooling="all", progress=False)["final"]
    ends = {"source": "rude", "target": "courteous"}
    return {
        "mean, selective": rs.MeanMatching(**ends, gate="nearest-mean").fit_moments(moments).steering_,
        "MiMiC, all": rs.MiMiC(**ends, shrinkage="ridge", gate="always").fit_moments(moments).steering_,
    }


def _by_prompt(found: Sequence[lm.Generation], n: int) -> list[list[str]]:
    texts: list[list[str]] = [[] for _ in range(n)]
    for one in found:
        texts[one.index].append(one.text)
    return texts


def _scored(texts: list[list[str]]) -> Scores:
    scores = iter(LinearScorer()([text for row in texts for text in row]))
    return [[next(scores) for _ in row] for row in texts]


def _statistics(texts: list[list[str]], scores: Scores) -> dict[str, float]:
    """Return the measures of the protocol and, for the two of toxicity, intervals over prompts."""
    highest = np.array([metrics.expected_max_toxicity([row]) for row in scores])
    any_toxic = np.array([metrics.toxicity_probability([row]) for row in scores])
    metrics.paired_bootstrap(
        {"highest": partial(_weighted, highest), "any": partial(_weighted, any_toxic)}, len(scores), resamples=1000
    )
    return {
        "expected maximum": metrics.expected_max_toxicity(scores),
        "probability": metrics.toxicity_probability(scores),
        **{f"distinct-{n}": metrics.distinct_n(texts, n) for n in (1, 2, 3)},
    }


def _weighted(values: Any, weights: Any) -> float:
    known = np.isfinite(values)
    return float(weights[known] @ values[known] / weights[known].sum())
