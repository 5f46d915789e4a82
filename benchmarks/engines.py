"""Two workers of each engine on shards of this machine: wall time, what they cost to start, and their peak memory."""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import shards
from benchmarks.lines import Line, Settings, fact
from benchmarks.memory import MIB, ONE_THREAD, _status

ENGINES = ("local", "ray", "dask")


def run(settings: Settings) -> list[Line]:
    """Run each engine in a fresh process, first on everything, then again with nothing left to count."""
    n, d, count = (4000, 64, 4) if settings.quick else (200_000, shards.D, 16)
    lines = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shards.write(folder / "data", rows=n, count=count, d=d)
        alone = _measured(folder, "local", 1)
        case = f"{n} x {d}, {count} shards"
        lines.append(fact(f"{case}: one process", alone["first"], "s", _note(alone)))
        for engine in ENGINES:
            pair = _measured(folder, engine, 2)
            gain = alone["first"] / pair["first"]
            lines.append(fact(f"{case}: {engine}, two workers", pair["first"], "s", _note(pair)))
            lines.append(fact(f"{case}: {engine}, gain over one process", gain, "x", "ideal: 2"))
    return lines


def _note(found: dict[str, float]) -> str:
    return (
        f"wall, once started; start {found['start']:.1f} s, all parts kept {found['again']:.1f} s; "
        f"peak of driver {found['driver'] / MIB:.0f} MiB, of a child {found['child'] / MIB:.0f} MiB"
    )


def _measured(folder: Path, engine: str, workers: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.engines", engine, str(workers), folder / "data"]
    command += [folder / f"{engine}-{workers}"]
    env = {**os.environ, **ONE_THREAD, "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(command, cwd=Path(__file__).parents[1], env=env, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _here(engine: str, workers: int, data: Path, work: Path) -> dict[str, float]:
    from repsurgery.scale import make_engine, reduce_shards

    found, seconds = shards.found(data), {}
    begin = time.perf_counter()
    with make_engine(engine, workers=workers) as started:
        if workers > 1:
            list(started.map(_nothing, [0.5] * workers))
        seconds["start"] = time.perf_counter() - begin
        for name in ("first", "again"):
            begin = time.perf_counter()
            reduce_shards(found, work_dir=work, engine=_Started(started))
            seconds[name] = time.perf_counter() - begin
    child = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {**seconds, "driver": _status("VmHWM"), "child": child}


class _Started:
    """An engine that is neither started nor stopped again."""

    def __init__(self, engine):
        self.map = engine.map

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def _nothing(seconds: float) -> None:
    # every worker must come up before one of them has done it all; the wait is small beside the start
    import repsurgery.scale.reduce.work  # noqa: F401

    time.sleep(seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("engine")
    parser.add_argument("workers", type=int)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    given = parser.parse_args()
    print(json.dumps(_here(given.engine, given.workers, given.data, given.work)))
