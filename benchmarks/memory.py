"""Peak memory above the input, each fit in its own fresh process."""

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import Classes
from benchmarks.lines import Line, Settings, at_most, fact

D, N = 768, 100_000
TARGET = 0.15
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
MIB = 2**20
OURS = {"MiMiC": "ours MiMiC", "LEACE": "ours LEACE"}
PEERS = {
    "pot-float32": "POT float32",
    "pot-float64": "POT float64 (valid)",
    "ce-batch-float32": "CE LEACE batch float32",
    "ce-stream-float64": "CE LEACE stream float64",
}


def run(settings: Settings) -> list[Line]:
    """Measure every fit on the same input."""
    d, n = (128, 5000) if settings.quick else (D, N)
    size = 4 * d * n / MIB
    lines = [fact(f"input: {n} x {d} float32", size, "MiB")]
    for name, title in {**OURS, **PEERS}.items():
        peak = _in_fresh_process(name, d, n) / MIB
        note = f"{peak:.1f} MiB"
        line = f"{title}, peak above input / input"
        lines.append(
            at_most(line, peak / size, TARGET, "x", note) if name in OURS else fact(line, peak / size, "x", note)
        )
    return lines


def _in_fresh_process(name: str, d: int, n: int) -> int:
    command = [sys.executable, "-m", "benchmarks.memory", name, str(d), str(n)]
    here = Path(__file__).parents[1]
    done = subprocess.run(
        command, cwd=here, env={**os.environ, **ONE_THREAD}, stdout=subprocess.PIPE, text=True, check=True
    )
    return int(json.loads(done.stdout))


def _fit(name: str) -> Callable[[Classes], Any]:
    """Import what the fit needs, and only that."""
    if name in OURS:
        import repsurgery as rs

        return lambda data: getattr(rs, name)().fit(data.X, data.z)
    from benchmarks import peers

    kind, dtype = name.rsplit("-", 1)
    fit = {"pot": peers.pot, "ce-batch": peers.ce_batch, "ce-stream": peers.ce_stream}[kind]
    return lambda data: fit(data, dtype=dtype)


def _input(d: int, n: int) -> Classes:
    # one allocation, touched: the classes are its two halves, so that a peer that wants them apart needs no copy
    X = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    z = np.repeat([0, 1], [n // 2, n - n // 2])
    X[z == 1, 0] += 1
    return Classes(X, z, X[: n // 2], X[n // 2 :])


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))


def _peak(name: str, d: int, n: int) -> int:
    """Return the bytes by which the fit raises the resident peak over what is resident before it."""
    fit = _fit(name)
    fit(_input(8, 64))  # lazy imports and BLAS buffers are not the fit's
    data = _input(d, n)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = _status("VmRSS")
    fit(data)
    return _status("VmHWM") - before


if __name__ == "__main__":
    print(json.dumps(_peak(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
