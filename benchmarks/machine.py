"""The facts without which a figure means nothing: processor, versions, date, load."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

__all__ = ["facts"]

PACKAGES = ("repsurgery", "numpy", "scipy", "scikit-learn", "POT", "concept-erasure", "torch")
PACKAGES += ("transformers", "repeng", "steering-vectors", "pyvene", "ray", "distributed")


def facts() -> dict[str, Any]:
    """Return what identifies this run."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "blas": sorted({f"{p['internal_api']} {p['version']} x{p['num_threads']}" for p in threadpool_info()}),
        "clock": "process CPU seconds, one thread, interleaved, medians",
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def _version(name: str) -> str:
    if name == "repsurgery":
        import repsurgery

        return repsurgery.__version__
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"
