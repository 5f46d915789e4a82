"""Where a result was computed: versions of what took part, and the machine's kind."""

import os
import platform
from importlib import metadata

__all__ = ["environment"]

_PACKAGES = ("repsurgery", "numpy", "scipy", "scikit-learn", "torch", "transformers", "matplotlib")


def environment() -> dict[str, str]:
    """Return versions and machine as pairs of words; nothing that names a user, a host or a folder."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    found["machine"] = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
    return found
