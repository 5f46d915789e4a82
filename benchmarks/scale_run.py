"""The two large runs, once and recorded: engines on a million vectors, and ten million streamed.

python -m benchmarks.scale_run equality FOLDER     1,000,000 x 768 float32 in 64 shards: every engine, one statistic
python -m benchmarks.scale_run stream FOLDER       10,000,000 x 768 float32 in 160 shards, end to end by the command

Shards are written to FOLDER first (3 GB, 31 GB) and stay there; each run writes its record to ``benchmarks/results``.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine, shards
from benchmarks.memory import MIB, ONE_THREAD
from repsurgery import ClassMoments
from repsurgery.moments import Moments

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
ENGINES = {"one process": ("local", 1), "local x 2": ("local", 2), "ray x 2": ("ray", 2), "dask x 2": ("dask", 2)}
TOLERANCE = 1e-12


def main() -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_run", description=__doc__)
    parser.add_argument("run", choices=["equality", "stream"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, help="fewer of them, to see that all works; the record is then not kept")
    parser.add_argument("--shards", type=int)
    given = parser.parse_args()
    rows, count = {"equality": (1_000_000, 64), "stream": (10_000_000, 160)}[given.run]
    data = given.folder / given.run
    shards.write(data, rows=given.rows or rows, count=given.shards or count)
    record = {"machine": machine.facts(), **{"equality": equality, "stream": stream}[given.run](data, given.folder)}
    record["machine"]["clock"] = "wall seconds, one thread per worker"
    record["machine"]["load_average_after"] = os.getloadavg()
    text = json.dumps(record, indent=1)
    print(text)
    if given.rows is None and given.shards is None:
        (RESULTS / f"scale_{given.run}.json").write_text(text + "\n")


def equality(data: Path, folder: Path) -> dict[str, Any]:
    """Count the same shards by every engine, in torchrun, and at once in memory; compare."""
    X, z = map(np.concatenate, zip(*shards.pieces(data), strict=True))
    wanted = ClassMoments.of(X, z)
    shape = X.shape
    del X
    found: dict[str, Any] = {}
    for name, (engine, workers) in ENGINES.items():
        out = folder / f"{name.replace(' ', '-')}.safetensors"
        seconds, peak = _command(data, out, engine, workers)
        found[name] = {"seconds": seconds, "peak_mib": peak / MIB, **_compared(ClassMoments.load(out), wanted)}
    out = folder / "torchrun.safetensors"
    begin = time.perf_counter()
    job = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*job, "-m", "benchmarks.torchrun_moments", data, out], cwd=ROOT, env=_environment(), check=True)
    seconds = time.perf_counter() - begin
    found["torchrun x 2"] = {"seconds": seconds, **_compared(ClassMoments.load(out), wanted)}
    bits = {name: ClassMoments.load(folder / f"{name.replace(' ', '-')}.safetensors") for name in ENGINES}
    same = all(np.array_equal(m[c].scatter, bits["one process"][c].scatter) for m in bits.values() for c in m)
    return {"rows": shape[0], "width": shape[1], "shards": len(list(data.glob("x*.npy"))), "engines": found} | {
        "engines_equal_to_the_bit": same,
        "all_within": all(run["difference"] <= TOLERANCE for run in found.values()),
    }


def stream(data: Path, folder: Path) -> dict[str, Any]:
    """Run the command on everything, in one process, and hold its counts and moments against plain sums."""
    out = folder / "stream.safetensors"
    seconds, peak = _command(data, out, "local", 1)
    found = ClassMoments.load(out)
    size = sum(path.stat().st_size for path in data.glob("x*.npy"))
    begin = time.perf_counter()
    compared = _compared(found, _plain(data))
    return {
        "rows": sum(m.count for m in found.values()),
        "width": found.dim,
        "bytes": size,
        "seconds": seconds,
        "rows_per_second": sum(m.count for m in found.values()) / seconds,
        "peak_mib": peak / MIB,
        **compared,
        "seconds_of_the_check": time.perf_counter() - begin,
    }


def _plain(data: Path) -> ClassMoments:
    """Return the moments by plain code: products about each class's mean in the first file, summed in longdouble."""
    pivots: dict[int, np.ndarray] = {}
    sums: dict[int, list[Any]] = {}
    for X, z in shards.pieces(data):
        for label in np.unique(z).tolist():
            Y = X[z == label].astype(np.float64)
            Y -= pivots.setdefault(label, Y.mean(axis=0))
            n, total, S = sums.get(label, [0, np.longdouble(0), np.longdouble(0)])
            sums[label] = [n + len(Y), total + Y.sum(axis=0, dtype=np.longdouble), S + Y.T @ Y]
    return ClassMoments({label: _about_mean(pivots[label], *found) for label, found in sums.items()})


def _about_mean(pivot: np.ndarray, n: int, total: np.ndarray, S: np.ndarray) -> Moments:
    S = (S - np.outer(total, total) / n).astype(np.float64)
    return Moments(n, float(n), (pivot + total / n).astype(np.float64), S, None, "float32")


def _command(data: Path, out: Path, engine: str, workers: int) -> tuple[float, int]:
    """Run the command in a fresh process and folder; return seconds and the peak of its largest process."""
    shutil.rmtree(out.with_name(f"{out.name}.work"), ignore_errors=True)
    words = ["moments", f"{data}/x*.npy", "--labels", f"{data}/z*.npy", "--engine", engine, "--workers", str(workers)]
    watched = [sys.executable, "-m", "benchmarks.scale_watch", *words, "--out", out]
    done = subprocess.run(watched, cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, check=True)
    measured = json.loads(done.stdout.splitlines()[-1])
    shutil.rmtree(out.with_name(f"{out.name}.work"), ignore_errors=True)
    return measured["seconds"], measured["peak"]


def _environment() -> dict[str, str]:
    return {**os.environ, **ONE_THREAD, "RAY_USAGE_STATS_ENABLED": "0"}


def _compared(found: ClassMoments, wanted: ClassMoments) -> dict[str, Any]:
    """Return the largest difference of any entry, each relative to the spread of its own features."""
    differences = []
    for c, m in wanted.items():
        spread = np.sqrt(np.diagonal(m.scatter))
        differences += [
            float((np.abs(found[c].mean - m.mean) / (np.abs(m.mean) + spread / np.sqrt(m.weight))).max()),
            float((np.abs(found[c].scatter - m.scatter) / np.outer(spread, spread)).max()),
        ]
    counts = {str(c): m.count for c, m in found.items()}
    same = found.labels == wanted.labels and all(found[c].count == wanted[c].count for c in wanted)
    return {"counts": counts, "counts_equal": same, "difference": max(differences)}


if __name__ == "__main__":
    main()
