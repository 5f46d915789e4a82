"""MiMiC with fewer rows than dimensions: d = 2048, 400 and 100 rows per class. POT runs only with a ridge."""

from functools import partial

import numpy as np

import repsurgery as rs
from benchmarks.clock import interleaved
from benchmarks.data import Classes, covariance, relative, transport_error, two_classes
from benchmarks.lines import Line, Settings, at_least, fact
from benchmarks.peers import pot

RIDGE = 1e-5


def run(settings: Settings) -> list[Line]:
    """Measure without and, like for like, with POT's ridge."""
    if settings.quick:
        return _at(256, 20, settings, target=20.0)
    return [*_at(2048, 400, settings, target=20.0), *_at(2048, 100, settings, target=200.0)]


def _at(d: int, n: int, settings: Settings, *, target: float) -> list[Line]:
    data = two_classes(n, d, condition=1e2)
    S0, S1 = covariance(data.source), covariance(data.target)
    t = interleaved(
        {
            "ours": partial(_mimic, data),
            "ridge": partial(_mimic, data, shrinkage="ridge", ridge=RIDGE),
            "pot": partial(pot, data, reg=RIDGE),
        },
        rounds=settings.rounds(d),
    )
    ours, ridge, W = t.results["ours"].weight, t.results["ridge"].weight, t.results["pot"]
    reg = RIDGE * np.eye(d)
    case = f"d={d} n={n}"
    return [
        at_least(f"{case} POT / ours", t.ratio("pot", "ours"), target, note=t.spread("pot", "ours")),
        at_least(f"{case} POT / ours, same ridge", t.ratio("pot", "ridge"), target, note=t.spread("pot", "ridge")),
        fact(f"{case} ours", t.of("ours"), "s"),
        fact(f"{case} ours, same ridge", t.of("ridge"), "s"),
        fact(f"{case} POT, reg={RIDGE:g}", t.of("pot"), "s"),
        fact(f"{case} W of POT from ours, same ridge", relative(W, ridge)),
        fact(f"{case} error of W S0 W' ours", transport_error(ours, S0, S1), note="no ridge"),
        fact(f"{case} error of W S0 W' ours, same ridge", transport_error(ridge, S0 + reg, S1 + reg), note="ridged"),
        fact(f"{case} error of W S0 W' POT", transport_error(W, S0 + reg, S1 + reg), note="ridged"),
    ]


def _mimic(data: Classes, **options: object) -> rs.AffineMap:
    return rs.MiMiC(source=0, target=1, **options).fit(data.X, data.z).map_
