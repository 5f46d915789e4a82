"""The hook's own work per decoding step at ``final``, d = 576: a gated dense map, low-rank, a translation."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import repsurgery as rs
from benchmarks import smollm2
from benchmarks.clock import Timings, interleaved
from benchmarks.data import Classes, two_classes
from benchmarks.lines import Line, Settings, at_least, at_most, fact
from repsurgery import lm
from repsurgery.lm.sites.names import entrances, resolve_site
from repsurgery.lm.steer import row_steering as row_work
from repsurgery.lm.steer.forward_context import _CONTEXTS
from repsurgery.lm.steer.passes import Call
from repsurgery.lm.steer.row_steering import RowSteering, as_steering

D = 576
CALLS = 200
TARGETS = {1: 150.0, 25: 500.0}
STEPS = 24
PROMPT = 6
PROMPT_ROWS = 1024
LOW_RANK_TARGET = 12.0


def run(settings: Settings) -> list[Line]:
    """Measure the hook in a tight loop, then where it really runs: between two layers of a decoding model."""
    data = two_classes(1200, D, condition=1e2)
    dense = rs.MiMiC(source=0, target=1, gate="nearest-mean").fit(data.X, data.z).steering_
    erase = rs.LEACE().fit(data.X, data.z).map_
    steerings = {
        "gated dense": dense,
        "gated LEACE": rs.SteeringFunction({0: erase}, dense.gate, dense.classes),
        "dense on all": dense.maps[0],
        "LEACE on all": erase,
        "translation on all": rs.MeanMatching(source=0, target=1).fit(data.X, data.z).map_,
    }
    lines = []
    for batch in TARGETS:
        lines += _bodies(steerings, _states(data, batch, 0.5), batch, settings)
    for share in (0.1, 0.5, 0.9):
        lines += _gather_or_where(dense, _states(data, 25, share), share, settings)
    lines += [_low_rank(d, settings) for d in (D, 768)]
    for batch in TARGETS:
        lines += _in_place(batch, settings)
    return lines


def _states(data: Classes, batch: int, share: float) -> torch.Tensor:
    """Return ``batch`` rows of which about ``share`` are gated; a lone one is."""
    gated = max(round(batch * share), 1)
    return torch.from_numpy(np.concatenate([data.source[:gated], data.target[: batch - gated]]))


def _bodies(steerings: dict[str, Any], X: torch.Tensor, batch: int, settings: Settings) -> list[Line]:
    model, _ = smollm2.loaded()
    candidates = {name: _repeated(partial(_rows(s), X), settings) for name, s in steerings.items()}
    with lm.steer(model, {"final": steerings["gated dense"]}):
        # called just as the model would call them, within generate
        _CONTEXTS[model]._passes.calls.append(Call(PROMPT))
        candidates["whole"] = _repeated(_hooks_of_a_step(model, X[:, None], batch), settings)
        t = interleaved(candidates, rounds=_rounds(settings))
    us = {name: _us(t, name, settings) for name in candidates}
    case = f"batch {batch}:"
    note = "row work + watch + positions; row work alone below"
    lines = [
        at_most(f"{case} hook, gated dense map", us["whole"], TARGETS[batch], "us", note),
        fact(f"{case} of it watch and positions", us["whole"] - us["gated dense"], "us"),
    ]
    lines += [fact(f"{case} row work, {name}", us[name], "us") for name in steerings]
    return [*lines, fact(f"{case} dense / LEACE, on all", *_ratio(t, "dense on all", "LEACE on all"))]


def _ratio(t: Timings, slow: str, fast: str) -> tuple[float, str, str]:
    return t.ratio(slow, fast), "x", t.spread(slow, fast)


def _low_rank(d: int, settings: Settings) -> Line:
    """Measure a whole prompt's rows, where the product and not the call is what costs."""
    rng = np.random.default_rng(0)
    offset = rng.standard_normal(d)
    maps = {
        "dense": rs.Dense(rng.standard_normal((d, d)), offset),
        "low": rs.LowRank(rng.standard_normal((d, 1)), rng.standard_normal((1, d)), offset),
    }
    X = torch.from_numpy(rng.standard_normal((PROMPT_ROWS, d), dtype=np.float32))
    work = {name: partial(row_work.as_torch_map(m), X) for name, m in maps.items()}
    candidates = {name: _repeated(f, settings, share=0.1) for name, f in work.items()}
    t = interleaved(candidates, rounds=_rounds(settings))
    what = f"{PROMPT_ROWS} rows, d={d}: dense / rank 1, the maps alone"
    ratio, unit, spread = _ratio(t, "dense", "low")
    return at_least(what, ratio, LOW_RANK_TARGET, unit, spread) if d == 768 else fact(what, ratio, unit, spread)


def _rows(steering: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    return RowSteering(as_steering(steering), name="benchmark")


def _gather_or_where(steering: Any, X: torch.Tensor, share: float, settings: Settings) -> list[Line]:
    work = _repeated(partial(_rows(steering), X), settings)

    def at(threshold: float) -> None:
        with patch.object(row_work, "GATHER_BELOW", threshold):
            work()

    t = interleaved({"gather": partial(at, 2.0), "where": partial(at, 0.0)}, rounds=_rounds(settings))
    note = f"gather {_us(t, 'gather', settings):.0f} us, where {_us(t, 'where', settings):.0f} us"
    return [fact(f"batch 25, {share:.0%} gated: where / gather", t.ratio("where", "gather"), "x", note)]


def _hooks_of_a_step(model: Any, state: torch.Tensor, batch: int) -> Callable[[], Any]:
    (outer, _), (inner, _) = entrances(model)
    norm = resolve_site(model, "final").module
    before = [(m, hook) for m in (outer, inner) for hook in m._forward_pre_hooks.values()]
    at_site = list(norm._forward_hooks.values())
    after = [(m, hook) for m in (inner, outer) for hook in m._forward_hooks.values()]
    tokens = smollm2.prompt_tokens(batch, PROMPT)
    with torch.no_grad():
        cache = model(**tokens, use_cache=True).past_key_values
    mask = torch.ones(batch, PROMPT + 1, dtype=torch.long)
    call = {"input_ids": tokens["input_ids"][:, -1:], "attention_mask": mask, "past_key_values": cache}

    def step() -> Any:
        for module, hook in before:
            hook(module, (), call)
        out = [hook(norm, (), state) for hook in at_site]
        for module, hook in after:
            hook(module, (), None)
        return out

    return step


def _in_place(batch: int, settings: Settings) -> list[Line]:
    """Clock every hook inside a real generation, where the caches hold the model's weights and not the map."""
    model, _ = smollm2.loaded()
    inputs, steps = smollm2.prompt_tokens(batch), 3 if settings.quick else STEPS
    steering = smollm2.fitted(settings.quick)["final"]
    clocked: dict[str, list[float]] = defaultdict(list)
    gated: list[float] = []
    with lm.steer(model, {"final": steering}), _clocked_hooks(model, clocked), _changed_rows(model, gated):
        start = time.process_time()
        model.generate(**inputs, **smollm2.decoding(steps))
        whole = (time.process_time() - start) / steps
    # the first is the prompt's
    later = list(zip(clocked["site"], gated, strict=True))[1:]
    acted = [seconds for seconds, share in later if share]
    # at batch 1 most steps may be let through by the gate: those in which a map ran are the ones that cost
    site = median(acted or clocked["site"][1:])
    watch = sum(median(clocked[name][1:]) for name in clocked if name != "site")
    note = f"{np.mean(gated):.0%} of the states gated; a map ran in {len(acted)} of {len(later)} steps"
    case = f"batch {batch}, inside generate:"
    return [
        fact(f"{case} decoding step", whole * 1e3, "ms"),
        fact(f"{case} hook at final", site * 1e6, "us", "caches cold"),
        fact(f"{case} watch", watch * 1e6, "us", "four hooks, each with about 1 us of clock"),
        at_most(f"{case} both as share of the step", 100 * (site + watch) / whole, 1.0, "%", note),
    ]


@contextmanager
def _clocked_hooks(model: Any, clocked: dict[str, list[float]]) -> Iterator[None]:
    (outer, _), (inner, _) = entrances(model)
    norm = resolve_site(model, "final").module
    places = {
        "site": norm._forward_hooks,
        **{f"enter {i}": m._forward_pre_hooks for i, m in enumerate((outer, inner))},
        **{f"leave {i}": m._forward_hooks for i, m in enumerate((outer, inner))},
    }
    for name, hooks in places.items():
        for key, hook in list(hooks.items()):
            hooks[key] = _clocking(hook, clocked[name])
    yield  # steer takes its hooks away by their keys, clocked or not


@contextmanager
def _changed_rows(model: Any, shares: list[float]) -> Iterator[None]:
    """Note which share of each step's states comes back changed, outside of what is clocked."""
    hooks = resolve_site(model, "final").module._forward_hooks
    for key, hook in list(hooks.items()):

        def noting(module: Any, args: Any, state: torch.Tensor, hook: Callable[..., Any] = hook) -> Any:
            new = hook(module, args, state)
            shares.append(float((new != state).any(dim=-1).float().mean()))
            return new

        hooks[key] = noting
    yield


def _clocking(hook: Callable[..., Any], found: list[float]) -> Callable[..., Any]:
    def clocking(*args: Any) -> Any:
        start = time.process_time()
        try:
            return hook(*args)
        finally:
            found.append(time.process_time() - start)

    return clocking


def _repeated(work: Callable[[], Any], settings: Settings, *, share: float = 1.0) -> Callable[[], None]:
    def repeated() -> None:
        with torch.no_grad():
            for _ in range(max(round(share * _calls(settings)), 1)):
                work()

    return repeated


def _calls(settings: Settings) -> int:
    return 5 if settings.quick else CALLS


def _rounds(settings: Settings) -> int:
    return 2 * settings.rounds(D)


def _us(t: Timings, name: str, settings: Settings) -> float:
    return t.of(name) / _calls(settings) * 1e6
