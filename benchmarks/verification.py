"""How often `verify` alarms on rows like those of the fit, and how often on maps that leave a fifth of the gap.

Run ``python -m benchmarks.verification``; the record is kept in ``benchmarks/results/verification.json``.
"""

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import repsurgery as rs
from repsurgery.certificates.claims import SHARE
from repsurgery.certificates.verify import LEVEL, verdict_of

__all__ = ["KINDS", "METHODS", "SIZES", "draw", "verdicts"]

DIM = 30
METHODS = (
    *("MeanMatching", "MiMiC", "LEACE", "DiagonalTransport"),
    *("BarycenterErasure", "TraceMatching", "MidSteer"),
)
SIZES = {
    "200 fitted, 200 new": ((200, 200), (200, 200)),
    "2,000 fitted, 20 new": ((2000, 2000), (20, 20)),
    "classes of 2,000 and 20": ((2000, 20), (2000, 20)),
    "2,000 fitted, 2,000 new": ((2000, 2000), (2000, 2000)),
}
Draw = Callable[[np.random.Generator, tuple[int, int], bool], NDArray[Any]]


def _sparse(rates: tuple[float, float], rare: float) -> Draw:
    def rows(rng: np.random.Generator, shape: tuple[int, int], source: bool) -> NDArray[Any]:
        p = np.where(np.arange(shape[1]) < 3, rates[not source], rare)
        return (rng.random(shape) < p).astype(float)

    return rows


def _shifted(noise: Callable[[np.random.Generator, tuple[int, int]], NDArray[Any]], by: float = 2.0) -> Draw:
    def rows(rng: np.random.Generator, shape: tuple[int, int], source: bool) -> NDArray[Any]:
        X = noise(rng, shape)
        if source:
            X[:, :3] += by
        return X

    return rows


def _correlated(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[Any]:
    return np.sqrt(0.05) * rng.normal(size=shape) + np.sqrt(0.95) * rng.normal(size=(shape[0], 1))


def _scales(rng: np.random.Generator, shape: tuple[int, int], source: bool) -> NDArray[Any]:
    return (rng.normal(size=shape) + 2 * source) * np.geomspace(1e-3, 1e3, shape[1])


def _text(rng: np.random.Generator, shape: tuple[int, int], source: bool) -> NDArray[Any]:
    return (rng.random(shape) < np.geomspace(0.3, 0.005, shape[1]) * (1.8 if source else 1.0)).astype(float)


def _sparse_lognormal(rng: np.random.Generator, shape: tuple[int, int], source: bool) -> NDArray[Any]:
    return (rng.random(shape) < 0.03) * np.exp(1.2 * rng.normal(size=shape)) * (1 if source else 2)


def _rare_direction(rng: np.random.Generator, shape: tuple[int, int], source: bool) -> NDArray[Any]:
    v = np.sign(np.random.default_rng(5).normal(size=shape[1]))
    rare = rng.random((shape[0], 1)) < (0.005 if source else 0.01)
    return rng.normal(size=shape) + 0.3 * (not source) + 10 * v * rare


def _rare_width(rng: np.random.Generator, shape: tuple[int, int], source: bool) -> NDArray[Any]:
    wide = np.where(rng.random((shape[0], 1)) < 0.01, 30.0, 1.0)
    return rng.normal(size=shape) * wide + 0.3 * (not source)


KINDS: dict[str, Draw] = {
    "normal": _shifted(lambda rng, shape: rng.normal(size=shape)),
    "normal, no gap": _shifted(lambda rng, shape: rng.normal(size=shape), by=0.0),
    "1 % ones": _sparse((0.01, 0.01), 0.01),
    "1 % ones, 10 % in the source": _sparse((0.1, 0.01), 0.01),
    "lognormal": _shifted(lambda rng, shape: rng.lognormal(size=shape)),
    "Student t, 3 degrees": _shifted(lambda rng, shape: rng.standard_t(3, size=shape)),
    "Student t, 2.5 degrees": _shifted(lambda rng, shape: rng.standard_t(2.5, size=shape)),
    "Laplace": _shifted(lambda rng, shape: rng.laplace(size=shape)),
    "rare counts (Poisson .02)": lambda rng, shape, source: rng.poisson(0.2 if source else 0.02, size=shape) * 1.0,
    "mixture, a tenth four times as wide": _shifted(
        lambda rng, shape: rng.normal(size=shape) * np.where(rng.random((shape[0], 1)) < 0.1, 4.0, 1.0)
    ),
    "correlated (.95)": _shifted(_correlated),
    "scales of 1e-3 to 1e3": _scales,
    "source three times as wide": lambda rng, shape, source: (
        rng.normal(size=shape) * (3.0 if source else 1.0) + 2.0 * source * (np.arange(shape[1]) < 3)
    ),
    "binary text features": _text,
    "3 % lognormal, else zero": _sparse_lognormal,
    "1 % of rows far along one direction": _rare_direction,
    "1 % of rows thirty times as wide": _rare_width,
}


def draw(rng: np.random.Generator, kind: str, rows: tuple[int, int]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return rows of both classes, the source (0) first, and their labels."""
    X = np.vstack([KINDS[kind](rng, (n, DIM), label == 0) for label, n in enumerate(rows)])
    return X, np.repeat([0, 1], rows)


def verdicts(
    kind: str, methods: Sequence[str], sizes: str, *, left: float, repeats: int, seed: int = 0
) -> dict[str, Counter[str]]:
    """Count each method's verdicts over repeated draws; ``left`` of the gap is put back into its map.

    All methods share the rows and the moments of a draw.
    """
    found: dict[str, Counter[str]] = {method: Counter() for method in methods}
    fitting, new = SIZES[sizes]
    for i in range(repeats):
        rng = np.random.default_rng([seed, i])
        moments, fresh = rs.ClassMoments.of(*draw(rng, kind, fitting)), draw(rng, kind, new)
        for method in methods:
            found[method][_verdict(method, moments, left, *fresh)] += 1
    return found


def _verdict(method: str, moments: rs.ClassMoments, left: float, X: NDArray[Any], z: NDArray[Any]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = getattr(rs, method).from_moments(moments)
        steering = estimator.steering_
    if left:
        weaker = rs.interpolate(steering, 1 - left)
        steering = rs.SteeringFunction(weaker.maps, weaker.gate, weaker.classes).sealed(estimator.certificate_)
    return verdict_of(lambda: rs.verify(steering, X, z))


def _cells(job: tuple[str, str, int]) -> list[dict[str, Any]]:
    kind, sizes, repeats = job
    right = verdicts(kind, METHODS, sizes, left=0.0, repeats=repeats)
    # twenty rows notice no fifth of any gap; that need not be simulated
    powered = min(SIZES[sizes][1]) >= 200
    weak = verdicts(kind, METHODS, sizes, left=SHARE, repeats=repeats if powered else 0, seed=1)
    return [
        {
            "kind": kind,
            "method": method,
            "sizes": sizes,
            "false_alarms": right[method]["contradicted"] / repeats,
            "supported": right[method]["supported"] / repeats,
            "power": weak[method]["contradicted"] / repeats if powered else None,
            "supported_though_weak": weak[method]["supported"] / repeats if powered else None,
        }
        for method in METHODS
    ]


def main() -> None:
    """Simulate every kind, method and size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verification", description=__doc__)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "verification.json")
    options = parser.parse_args()
    jobs = [(kind, sizes, options.repeats) for sizes in options.sizes for kind in KINDS]
    with Pool() as pool:
        cells = [cell for cells in pool.map(_cells, jobs, chunksize=1) for cell in cells]
    record = {"level": LEVEL, "share": SHARE, "repeats": options.repeats, "dim": DIM, "cells": cells}
    options.output.write_text(json.dumps(record, indent=1) + "\n")
    for sizes in options.sizes:
        chosen = [c for c in cells if c["sizes"] == sizes]
        alarms, power = ([c[name] for c in chosen if c[name] is not None] for name in ("false_alarms", "power"))
        print(f"{sizes}: false alarms {np.mean(alarms):.4f}, worst {max(alarms):.3f}", end="")
        print(f"; power {np.mean(power):.2f}" if power else "")


if __name__ == "__main__":
    main()
