"""What sketch, ledger and figures on rows cost: fits and streams beside those of an earlier checkout, in turns.

    python -m benchmarks.checked_fit --before PATH/src

``PATH`` is a checkout of the commit to compare with, such as one made by ``git worktree add``. Each version runs in a
process of its own on one thread; the processes take turns, so that a busy machine slows all of them alike.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.memory import ONE_THREAD

RESULT = Path(__file__).parent / "results" / "checked_fit.json"
ROWS, FEW, D, WIDE = 40_000, 200, 768, 2048
SLOW = ("wide", "pot wide")
"""POT needs a quarter of a minute for each; they run in the first two rounds only."""


def tasks() -> dict[str, Callable[[], Any]]:
    """Return what is timed; each call gives one result."""
    from scipy import linalg
    from scipy.linalg import blas

    import repsurgery as rs
    from benchmarks.data import covariance, two_classes
    from benchmarks.peers import pot
    from repsurgery.moments.stream import stream_moments

    many, few = two_classes(ROWS // 2, D, condition=1e4), two_classes(FEW // 2, D, condition=1e2)
    wide = two_classes(FEW // 2, WIDE, condition=1e2)
    doubles = [X.astype(np.float64) for X in (many.source, many.target)]
    S0 = covariance(many.source)
    starts = range(0, ROWS, 1024)

    def limit() -> None:
        for X in doubles:
            blas.dsyrk(1.0, X.T, lower=0)
        linalg.eigh(S0, driver="evd", check_finite=False)

    def mimic(data: Any) -> Any:
        return rs.MiMiC(source=0, target=1).fit(data.X, data.z)

    def halves() -> Any:
        parts = [rs.ClassMoments.of(many.X[i::2], many.z[i::2]) for i in range(2)]
        return parts[0] + rs.ClassMoments.from_bytes(parts[1].to_bytes())

    return {
        "fit": lambda: mimic(many),
        "few": lambda: mimic(few),
        "stream": lambda: stream_moments((many.X[i : i + 1024], many.z[i : i + 1024]) for i in starts),
        "workers": halves,
        "limit": limit,
        "pot": lambda: pot(few, reg=1e-5),
        "wide": lambda: mimic(wide),
        "pot wide": lambda: pot(wide, reg=1e-5),
    }


def work() -> None:
    """Time the task that each line of standard input names, and answer with its CPU seconds."""
    known = tasks()
    print("ready", flush=True)
    for line in sys.stdin:
        gc.collect()
        start = time.process_time()
        known[line.strip()]()
        print(time.process_time() - start, flush=True)


class Worker:
    """A process that runs the tasks on the package in ``source``."""

    def __init__(self, source: Path) -> None:
        root = Path(__file__).parents[1]
        path = os.pathsep.join([str(source.resolve()), str(root)])
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from benchmarks.checked_fit import work; work()"],
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def _answer(self) -> str:
        line = self._process.stdout.readline()  # type: ignore[union-attr]
        if not line:
            raise RuntimeError("A worker ended; its message stands above.")
        return line

    def seconds(self, task: str) -> float:
        """Return the CPU seconds of one run."""
        self._process.stdin.write(f"{task}\n")  # type: ignore[union-attr]
        self._process.stdin.flush()  # type: ignore[union-attr]
        return float(self._answer())


def main() -> None:
    """Measure, print and keep the record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checked_fit", description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="the folder src of the earlier checkout")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    workers = {"before": Worker(options.before), "now": Worker(Path(__file__).parents[1] / "src")}
    seconds: dict[tuple[str, str], list[float]] = {}
    for i in range(options.rounds):
        for task in ("fit", "few", "stream", "workers", "limit", "pot", *(SLOW if i < 2 else ())):
            names = ["now"] if task in ("limit", "pot", "pot wide") else ["before", "now"]
            for name in names if i % 2 else names[::-1]:
                seconds.setdefault((task, name), []).append(workers[name].seconds(task))

    def ratio(slow: tuple[str, str], fast: tuple[str, str]) -> float:
        return median(a / b for a, b in zip(seconds[slow], seconds[fast], strict=True))

    record = {
        "rows": ROWS,
        "few_rows": FEW,
        "features": D,
        "features of wide rows": WIDE,
        "rounds": options.rounds,
        "seconds": {f"{task} {name}": round(median(values), 4) for (task, name), values in seconds.items()},
        "ratios": {
            "fit, now / before (at most 1.10)": ratio(("fit", "now"), ("fit", "before")),
            "fit, now / (2 dsyrk + eigh) (at most 1.30)": ratio(("fit", "now"), ("limit", "now")),
            "few rows, POT / now": ratio(("pot", "now"), ("few", "now")),
            "few wide rows, POT / now (at least 100)": ratio(("pot wide", "now"), ("wide", "now")),
            "few wide rows, now / before": ratio(("wide", "now"), ("wide", "before")),
            "few rows, now / before": ratio(("few", "now"), ("few", "before")),
            "stream, now / before (at most 1.03)": ratio(("stream", "now"), ("stream", "before")),
            "two workers, now / before (at most 1.03)": ratio(("workers", "now"), ("workers", "before")),
        },
    }
    print(json.dumps(record, indent=1))
    RESULT.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
