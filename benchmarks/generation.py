"""Whole generations on SmolLM2 beside base, repeng, steering-vectors and pyvene; base / base shows the noise."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import repsurgery as rs
from benchmarks import smollm2, steering_peers
from benchmarks.clock import Timings, interleaved
from benchmarks.lines import Line, Settings, fact
from repsurgery import lm

STEPS = {1: 20, 25: 12}
STRENGTH = 3.0


def run(settings: Settings) -> list[Line]:
    """Measure at batch 1 and 25, in shuffled rounds, as medians of paired ratios."""
    fitted = smollm2.fitted(settings.quick)
    shift = STRENGTH * fitted["middle"].shift
    peers = steering_peers.installed()
    lines = []
    for batch in STEPS:
        lines += _at(batch, shift, fitted["final"], peers, settings)
    return lines


def _at(batch: int, shift: Any, gated: Any, peers: dict[str, Any], settings: Settings) -> list[Line]:
    model, _ = smollm2.loaded()
    steps = 3 if settings.quick else STEPS[batch]
    inputs, how = smollm2.prompt_tokens(batch), smollm2.decoding(steps)
    vector = torch.tensor(shift, dtype=torch.float32)
    middle = f"layers.{smollm2.LAYER}"
    base = partial(model.generate, **inputs, **how)
    candidates: dict[str, Callable[[], torch.Tensor]] = {
        "base": base,
        "base again": base,
        "plain hook": partial(_plain, model, vector, base),
        "ours, additive": partial(_ours, model, {middle: rs.Translation(shift)}, base),
        "ours, gated affine at final": partial(_ours, model, {"final": gated}, base),
        **{name: partial(peer, model, inputs, smollm2.LAYER, vector, how) for name, peer in peers.items()},
    }
    rounds = settings.repeats or (2 if settings.quick else 9 if batch == 1 else 5)
    t = interleaved(candidates, rounds=rounds, shuffled=True)
    lines = [fact(f"batch {batch}: base, a step", t.of("base") / steps * 1e3, "ms", f"{steps} steps, {rounds} rounds")]
    for name in candidates:
        if name != "base":
            note = f"{t.spread(name, 'base')}; {_effect(t, name)}"
            lines.append(fact(f"batch {batch}: {name} / base", t.paired(name, "base"), "x", note))
    return lines


def _effect(t: Timings, name: str) -> str:
    tokens, base, plain = t.results[name], t.results["base"], t.results["plain hook"]
    if name == "base again":
        return "control"
    if torch.equal(tokens, base):
        return "DID NOT INTERVENE"
    changed = int((tokens != base).any(dim=1).sum())
    same = "" if name == "ours, gated affine at final" else _beside(tokens, plain)
    return f"{changed} of {len(base)} texts changed{same}"


def _beside(tokens: torch.Tensor, plain: torch.Tensor) -> str:
    equal = int((tokens == plain).all(dim=1).sum())
    return f", {equal} as by a plain hook"


def _plain(model: Any, vector: torch.Tensor, generate: Callable[[], torch.Tensor]) -> torch.Tensor:
    block = model.model.layers[smollm2.LAYER]
    handle = block.register_forward_hook(lambda module, args, state: state + vector)
    try:
        return generate()
    finally:
        handle.remove()


def _ours(model: Any, sites: dict[str, Any], generate: partial) -> torch.Tensor:
    with lm.steer(model, sites):
        # looked up anew: steering notes the prompt of each call
        return model.generate(**generate.keywords)
