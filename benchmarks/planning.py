"""Plans beside runs: predicted and measured CPU seconds of counting generated shards in one process, and its memory.

Both are CPU seconds of one thread: rates are measured between two runs and after them, files come from page cache.
"""

import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median

from benchmarks import shards
from benchmarks.lines import Line, Settings, fact
from benchmarks.memory import MIB, ONE_THREAD, _status
from repsurgery.scale import LocalEngine, measure_rates, plan, reduce_shards

CASES = [(800_000, 64, 2), (160_000, 256, 4), (60_000, 768, 4), (60_000, 768, 12), (24_000, 1536, 2), (12_000, 2048, 2)]
QUICK = [(4000, 64, 2)]


def run(settings: Settings) -> list[Line]:
    """Plan and count each case, and report predicted / measured."""
    lines = []
    for n, d, count in QUICK if settings.quick else CASES:
        rounds = [_round(n, d, count) for _ in range(settings.repeats or (1 if settings.quick else 3))]
        ratio, measured, peak = (median(column) for column in zip(*rounds, strict=True))
        case = f"{n} x {d} float32 in {count} shards"
        lines += [
            fact(f"{case}: predicted / measured CPU seconds", ratio, "x", f"{measured:.2f} s measured"),
            fact(f"{case}: predicted / measured peak memory", peak, "x"),
        ]
    return lines


def _round(n: int, d: int, count: int) -> tuple[float, float, float]:
    command = [sys.executable, "-m", "benchmarks.planning", str(n), str(d), str(count)]
    env = {**os.environ, **ONE_THREAD}
    done = subprocess.run(command, cwd=Path(__file__).parents[1], env=env, stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)
    print(f"  {n} x {d}: {found}", file=sys.stderr)
    return found["predicted"] / found["measured"], found["measured"], found["predicted_bytes"] / found["measured_bytes"]


def _one(n: int, d: int, count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shards.write(folder / "warm", rows=64, count=1, d=8)
        shards.write(folder / "data", rows=n, count=count, d=d)
        _count(folder / "warm", folder / "warm-work")
        for path in (folder / "data").iterdir():
            path.read_bytes()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        resident = _status("VmRSS")
        counts, rates = [_timed(folder, "first")], []
        peak = _status("VmHWM") - resident
        rates.append(measure_rates(d, folder=folder, clock=time.process_time))
        counts.append(_timed(folder, "second"))
        rates.append(measure_rates(d, folder=folder, clock=time.process_time))
    plans = [plan(n, d, shards.CLASSES, shards=count, rates=each) for each in rates]
    return {
        "predicted": mean(each.seconds for each in plans),
        "measured": mean(counts),
        "predicted_bytes": plans[0].memory_bytes,
        "measured_bytes": peak,
        "multiply_share": plans[0].multiply_seconds / plans[0].seconds,
        "gflops": rates[0].multiply / 1e9,
        "handle": rates[0].handle / 1e6,
        "read": rates[0].read / MIB,
        "write": rates[0].write / MIB,
        "load": rates[0].load / MIB,
    }


def _timed(folder: Path, work: str) -> float:
    start = time.process_time()
    _count(folder / "data", folder / work)
    return time.process_time() - start


def _count(data: Path, work: Path) -> None:
    reduce_shards(shards.found(data), work_dir=work, engine=LocalEngine(workers=1))


if __name__ == "__main__":
    print(json.dumps(_one(*map(int, sys.argv[1:4]))))
