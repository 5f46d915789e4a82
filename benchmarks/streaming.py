"""Streaming files in one process beside the bare float64 block syrk of the same bytes, and its peak memory."""

import gc
import json
import os
import subprocess
import sys
import tempfile
from functools import partial, reduce
from operator import add
from pathlib import Path

import numpy as np
from scipy.linalg import blas

from benchmarks import shards
from benchmarks.clock import interleaved
from benchmarks.lines import Line, Settings, at_least, at_most, fact
from benchmarks.memory import MIB, ONE_THREAD, _status
from repsurgery import ClassMoments
from repsurgery.scale import count_shard
from repsurgery.scale.shards.counting import BATCH_BYTES

TARGET = 0.8
SQUARES = 9.0
"""Beside one batch, in units of d² float64; two classes."""
BLOCK = 1024


def run(settings: Settings) -> list[Line]:
    """Measure the rate on four files, and the memory on one file of each of two lengths."""
    n, d = (4000, 64) if settings.quick else (80_000, shards.D)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shards.write(folder, rows=n, count=4, d=d)
        t = interleaved(
            {"read": partial(_bare, folder), "bare": partial(_syrk, n, d), "ours": partial(_ours, folder)},
            rounds=settings.repeats or (2 if settings.quick else 7),
        )
    case = f"{n} x {d} float32, 4 files"
    return [
        fact(f"{case}: bare syrk of float64 blocks in memory", n / t.of("bare") / 1e3, "thousand rows/s"),
        at_least(f"{case}: streaming / read + cast + syrk, rate", 1 / t.paired("ours", "read"), TARGET, "x"),
        at_least(f"{case}: streaming / bare syrk, rate", 1 / t.paired("ours", "bare"), TARGET, "x"),
        *(_memory(size, d) for size in ((2000, 4000) if settings.quick else (40_000, 80_000))),
    ]


def _ours(folder: Path) -> ClassMoments:
    return reduce(add, [count_shard(shard).moments for shard in shards.found(folder)])


def _bare(folder: Path) -> np.ndarray:
    S = None
    for path in sorted(folder.glob("x*.npy")):
        mapped = np.load(path, mmap_mode="r")
        (n, d), offset = mapped.shape, mapped.offset
        del mapped
        S = np.zeros((d, d), order="F") if S is None else S
        with path.open("rb") as stream:
            stream.seek(offset)
            for start in range(0, n, BLOCK):
                X = np.fromfile(stream, np.float32, min(BLOCK, n - start) * d).reshape(-1, d)
                S = blas.dsyrk(1.0, X.astype(np.float64).T, beta=1.0, c=S, lower=0, overwrite_c=1)
    return S


def _syrk(n: int, d: int) -> np.ndarray:
    Z, S = np.random.default_rng(0).standard_normal((BLOCK, d)), np.zeros((d, d), order="F")
    for start in range(0, n, BLOCK):
        S = blas.dsyrk(1.0, Z[: min(BLOCK, n - start)].T, beta=1.0, c=S, lower=0, overwrite_c=1)
    return S


def _memory(n: int, d: int) -> Line:
    command = [sys.executable, "-m", "benchmarks.streaming", str(n), str(d)]
    env = {**os.environ, **ONE_THREAD}
    done = subprocess.run(command, cwd=Path(__file__).parents[1], env=env, stdout=subprocess.PIPE, check=True)
    peak = json.loads(done.stdout)
    squares = (peak - BATCH_BYTES) / (8 * d * d)
    note = f"{peak / MIB:.0f} MiB, the file {4 * n * d / MIB:.0f} MiB, the batch {BATCH_BYTES / MIB:.0f} MiB"
    return at_most(f"one file of {n} rows: peak memory beyond one batch / d² float64", squares, SQUARES, "x", note)


def _peak(n: int, d: int) -> int:
    """Return the bytes by which counting a file raises the resident peak over what is resident before it."""
    with tempfile.TemporaryDirectory() as name:
        shards.write(Path(name) / "warm", rows=64, count=1, d=8)
        shards.write(Path(name) / "real", rows=n, count=1, d=d)
        _ours(Path(name) / "warm")
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")
        before = _status("VmRSS")
        _ours(Path(name) / "real")
        return _status("VmHWM") - before


if __name__ == "__main__":
    print(json.dumps(_peak(int(sys.argv[1]), int(sys.argv[2]))))
