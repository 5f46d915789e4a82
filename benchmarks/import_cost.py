"""What starting costs: CPU seconds (user and system) of imports and of the command line, each in a fresh process."""

import os
import resource
import subprocess
import sys
from statistics import median

from benchmarks.lines import Line, Settings, at_most, fact
from benchmarks.memory import ONE_THREAD

YARDSTICKS = {
    "Python alone": "pass",
    "import numpy": "import numpy",
    "import sklearn.base, of which estimators are subclasses": "import sklearn.base",
}
OURS = {
    "import repsurgery": ("import repsurgery", 1.0),
    "first moments and maps": ("import repsurgery as rs; rs.Moments, rs.Dense", 1.0),
    "repsurgery --help": (
        "import sys; sys.argv = ['repsurgery', '--help']; from repsurgery.cli import main; main()",
        0.5,
    ),
}
ESTIMATOR = "import repsurgery as rs; rs.MiMiC"
TARGET = 1.25


def run(settings: Settings) -> list[Line]:
    """Measure every program once per round, so that a busy machine slows all of them alike."""
    programs = YARDSTICKS | {name: code for name, (code, _) in OURS.items()} | {"first estimator": ESTIMATOR}
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(settings.repeats or (2 if settings.quick else 9)):
        for name, code in programs.items():
            seconds[name].append(_cpu_seconds(code))
    of = {name: median(values) for name, values in seconds.items()}
    floor = list(YARDSTICKS)[-1]
    return [
        *(fact(name, of[name], "s") for name in YARDSTICKS),
        *(at_most(name, of[name], bound, "s") for name, (_, bound) in OURS.items()),
        fact("first estimator", of["first estimator"], "s"),
        at_most("first estimator / sklearn.base", of["first estimator"] / of[floor], TARGET, "x"),
    ]


def _cpu_seconds(code: str) -> float:
    before = _children()
    subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **ONE_THREAD}, stdout=subprocess.DEVNULL, check=True
    )
    return _children() - before


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
