"""The environment of a result: the versions of the packages, and the kind of machine."""

import os
import platform
from importlib import metadata

from repsurgery.registry import installed_plugins

__all__ = ["environment"]

_PACKAGES = ("repsurgery", "numpy", "scipy", "scikit-learn", "torch", "transformers", "matplotlib")


def environment(**given: str | None) -> dict[str, str]:
    """Return versions, machine and what was ``given`` by name; nothing in it names a user, a host or a folder."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        **versions,
        **installed_plugins(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        **{name: value for name, value in given.items() if value is not None},
    }
