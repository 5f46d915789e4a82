"""LEACE on float32 rows beside concept-erasure in float64, at once and streamed."""

from functools import partial

import numpy as np

import repsurgery as rs
from benchmarks.clock import interleaved
from benchmarks.data import Classes, two_classes
from benchmarks.lines import Line, Settings, at_least, fact
from benchmarks.peers import ce_batch, ce_stream

TARGET = 2.0


def run(settings: Settings) -> list[Line]:
    """Measure at the model widths 768 and 2048."""
    if settings.quick:
        return _at(128, 1000, settings)
    return [*_at(768, 20_000, settings), *_at(2048, 20_000, settings)]


def _at(d: int, n: int, settings: Settings) -> list[Line]:
    data = two_classes(n, d, condition=1e4)
    t = interleaved(
        {"ours": partial(_leace, data), "batch": partial(ce_batch, data), "stream": partial(ce_stream, data)},
        rounds=settings.rounds(d),
    )
    float32 = ce_batch(data, dtype="float32")
    return [
        at_least(f"d={d} CE batch / ours", t.ratio("batch", "ours"), TARGET, note=t.spread("batch", "ours")),
        at_least(f"d={d} CE stream / ours", t.ratio("stream", "ours"), TARGET, note=t.spread("stream", "ours")),
        fact(f"d={d} ours", t.of("ours"), "s"),
        fact(f"d={d} CE float64 batch", t.of("batch"), "s"),
        fact(f"d={d} CE float64 stream", t.of("stream"), "s"),
        fact(f"d={d} class-mean gap left, ours", _gap_left(t.results["ours"].weight, data)),
        fact(f"d={d} class-mean gap left, CE float64 batch", _gap_left(t.results["batch"].P.numpy(), data)),
        fact(f"d={d} class-mean gap left, CE float64 stream", _gap_left(t.results["stream"].P.numpy(), data)),
        fact(f"d={d} class-mean gap left, CE float32 batch", _gap_left(float32.P.numpy(), data)),
    ]


def _leace(data: Classes) -> rs.AffineMap:
    return rs.LEACE().fit(data.X, data.z).map_


def _gap_left(P: np.ndarray, data: Classes) -> float:
    """Return ‖P (μ₁ − μ₀)‖ / ‖μ₁ − μ₀‖ in float64."""
    gap = data.target.mean(axis=0, dtype=np.float64) - data.source.mean(axis=0, dtype=np.float64)
    return float(np.linalg.norm(P.astype(np.float64) @ gap) / np.linalg.norm(gap))
