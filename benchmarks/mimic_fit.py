"""MiMiC on 2 x 20,000 float32 rows beside POT in float64, and beside the bare limit: syrk and one eigh."""

from functools import partial

import numpy as np
from scipy import linalg
from scipy.linalg import blas

import repsurgery as rs
from benchmarks.clock import interleaved
from benchmarks.data import Classes, covariance, relative, transport_error, two_classes
from benchmarks.lines import Line, Settings, at_least, at_most, fact
from benchmarks.peers import pot

CONDITION = 1e4


def run(settings: Settings) -> list[Line]:
    """Measure at the model widths 768 and 2048."""
    if settings.quick:
        return _at(128, 1000, settings, at_least_pot=3.0, at_least_float32=4.5)
    return [
        *_at(768, 20_000, settings, at_least_pot=3.0, at_least_float32=4.5),
        *_at(2048, 20_000, settings, at_least_pot=3.5, at_least_float32=None),
    ]


def _at(d: int, n: int, settings: Settings, *, at_least_pot: float, at_least_float32: float | None) -> list[Line]:
    data = two_classes(n, d, condition=CONDITION)
    S0, S1 = covariance(data.source), covariance(data.target)
    doubles = [X.astype(np.float64) for X in (data.source, data.target)]
    candidates = {"ours": partial(_mimic, data), "pot": partial(pot, data), "limit": partial(_limit, doubles, S0)}
    if at_least_float32 is not None:
        candidates["ours32"] = partial(_mimic, data, precision="float32-products")
    t = interleaved(candidates, rounds=settings.rounds(d))
    W = t.results["ours"]
    lines = [
        at_least(f"d={d} POT float64 / ours", t.ratio("pot", "ours"), at_least_pot, note=t.spread("pot", "ours")),
        fact(f"d={d} ours", t.of("ours"), "s"),
        fact(f"d={d} POT float64", t.of("pot"), "s"),
        fact(f"d={d} limit: dsyrk + one eigh", t.of("limit"), "s"),
        fact(f"d={d} ours / limit", t.ratio("ours", "limit"), "x", t.spread("ours", "limit")),
        fact(f"d={d} error of W S0 W' ours", transport_error(W, S0, S1)),
        fact(f"d={d} error of W S0 W' POT float64", transport_error(t.results["pot"], S0, S1)),
    ]
    if at_least_float32 is None:
        return lines
    return [
        *lines,
        at_least(
            f"d={d} POT float64 / ours, float32 products",
            t.ratio("pot", "ours32"),
            at_least_float32,
            note=t.spread("pot", "ours32"),
        ),
        fact(f"d={d} ours, float32 products", t.of("ours32"), "s"),
        at_most(f"d={d} W of float32 products from W of float64", relative(t.results["ours32"], W), 2e-5),
    ]


def _mimic(data: Classes, **options: str) -> np.ndarray:
    return rs.MiMiC(source=0, target=1, **options).fit(data.X, data.z).map_.weight


def _limit(doubles: list[np.ndarray], S: np.ndarray) -> None:
    for X in doubles:
        blas.dsyrk(1.0, X.T, lower=0)
    linalg.eigh(S, driver="evd", check_finite=False)
