"""The facts that ``repsurgery doctor`` shows, each read without the extras that it is about."""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import repsurgery
from repsurgery.datasets.folder import ORIGINS, VARIABLE
from repsurgery.errors import OutputError
from repsurgery.outputs import check_output_folder

__all__ = ["Checkup", "Problem", "examine"]

PACKAGE = "repsurgery"
LEAST_DISK = 200 * 10**6
"""Bytes of free disk below which hardly any command can write its result."""
IMPORTED = {"numpy": "numpy", "scipy": "scipy", "scikit-learn": "sklearn", "safetensors": "safetensors"}
IMPORTED |= {"torch": "torch", "transformers": "transformers"}
"""Packages that are not only looked up but imported, because compiled code may be broken; and their modules."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that breaks what is installed, and what to do about it."""

    problem: str
    remedy: str


@dataclass(slots=True)
class Checkup:
    """What was found; ``problems`` is empty on a sound installation, where optional extras may be missing."""

    facts: dict[str, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return everything, JSON-ready up to paths."""
        return {"ok": not self.problems, "problems": self.problems, **self.facts}


def examine() -> Checkup:
    """Return the state of this installation and machine.

    Guarantees
    ----------
    It works without any extra but cli (test_doctor_works_with_no_extra_but_cli).
    """
    found = Checkup()
    found.facts[PACKAGE] = repsurgery.__version__
    found.facts["python"] = platform.python_version()
    found.facts["platform"] = platform.platform(terse=True)
    found.facts["packages"] = _packages(found)
    found.facts["torch"] = _torch(found)
    found.facts["extras"] = _extras(found)
    found.facts["models"] = _models(found)
    found.facts["folders"] = _folders(found)
    found.facts["data"] = _data(found)
    found.facts["hub"] = (
        "offline" if os.environ.get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes") else "not switched off"
    )
    found.facts["memory"] = _memory()
    return found


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _packages(found: Checkup) -> dict[str, str]:
    """Return the versions of installed packages whose code is compiled, all of which can be imported."""
    versions = {package: version for package in IMPORTED if (version := _version(package))}
    for package in list(versions):
        try:
            import_module(IMPORTED[package])
        except Exception as error:  # a broken library may raise anything
            reason = " ".join(str(error).split())
            again = f"pip install --force-reinstall '{package}=={versions.pop(package)}'"
            found.problems.append(
                Problem(f"{package} is installed and cannot be imported ({reason}).", f"Run: {again}")
            )
    return versions


def _torch(found: Checkup) -> dict[str, Any] | None:
    if "torch" not in found.facts["packages"]:
        return None
    torch = import_module("torch")
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
    devices = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    devices += ["mps"] if torch.backends.mps.is_available() else []
    return {"version": str(torch.__version__), "build": build, "threads": torch.get_num_threads(), "devices": devices}


def _extras(found: Checkup) -> dict[str, Any]:
    """Return, for each extra, which of its packages are missing; a package that is too old is a problem."""
    try:
        names = metadata.metadata(PACKAGE).get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:  # run from a folder of sources
        return {}
    extras = {}
    for extra in sorted(names):
        missing = []
        for needed in _requirements(extra):
            version = _version(needed.name)
            if version is None:
                missing.append(needed.name)
            elif not needed.specifier.contains(version, prereleases=True):
                problem = Problem(
                    f"{needed.name} {version} is installed, and {PACKAGE}[{extra}] needs {needed.specifier}.",
                    f"Run: pip install --upgrade '{needed.name}{needed.specifier}'",
                )
                found.problems += [problem] if problem.remedy not in [one.remedy for one in found.problems] else []
        install = f"pip install '{PACKAGE}[{extra}]'"
        extras[extra] = {"installed": not missing, "missing": sorted(set(missing)), "install": install}
    return extras


def _requirements(extra: str, seen: frozenset[str] = frozenset()) -> Iterator[Any]:
    """Yield the requirements of an extra, and of the extras that it includes."""
    from packaging.requirements import Requirement  # which lazy_loader brings

    for line in metadata.requires(PACKAGE) or []:
        needed = Requirement(line)
        if (
            needed.marker is None
            or needed.marker.evaluate({"extra": ""})
            or not needed.marker.evaluate({"extra": extra})
        ):
            continue
        if needed.name != PACKAGE:
            yield needed
            continue
        for inner in needed.extras - seen:
            yield from _requirements(inner, seen | {extra})


def _models(found: Checkup) -> dict[str, Any]:
    """Return the embedded models: whether their packages are there, and the size of what was converted."""
    if not {"torch", "transformers"} <= found.facts["packages"].keys():
        return {}
    try:
        from repsurgery.lm.load.catalogue import EMBEDDED
        from repsurgery.lm.load.folder import cache_root
    except ImportError:  # of an extra that is not complete, which is no problem
        return {}
    models = {}
    for name, model in EMBEDDED.items():
        folder = None if model.is_folder else cache_root() / model.folder_name
        models[name] = {
            "installed": all(part.find() for part in model.parts),
            "converted": folder if folder and folder.is_dir() else None,
            "bytes": _size(folder) if folder and folder.is_dir() else 0,
            "licence": model.licence,
            "install": model.command,
        }
    return models


def _folders(found: Checkup) -> dict[str, Any]:
    places = {"work": Path.cwd(), "temporary": Path(tempfile.gettempdir())}
    if found.facts["models"]:
        from repsurgery.lm.load.folder import cache_root

        places["cache"] = cache_root()
    hub = os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME", "~/.cache/huggingface")) / "hub"
    places["hub"] = Path(hub).expanduser()
    remedies = {"cache": "Set REPSURGERY_CACHE to a folder that can be written."}
    remedies |= {"temporary": "Set TMPDIR to a folder that can be written.", "hub": "Set HF_HOME to another folder."}
    folders = {}
    for name, place in places.items():
        remedy = remedies.get(name, "Change to another folder.")
        there = next(folder for folder in (place, *place.absolute().parents) if folder.exists())
        free = shutil.disk_usage(there).free
        try:
            check_output_folder(place)
            writable = True
        except OutputError as error:
            writable = False
            # commands write where they are told to, and most of them elsewhere
            found.problems += [Problem(str(error).partition(". ")[0] + ".", remedy)] if name != "work" else []
        if free < LEAST_DISK:
            found.problems.append(
                Problem(f"Only {free / 1e6:.0f} MB are free at {there}.", f"Make room there. {remedy}")
            )
        size = _size(place) if name in ("cache", "hub") and place.is_dir() else None
        folders[name] = {"path": place, "writable": writable, "free_bytes": free, "bytes": size}
    return folders


def _data(found: Checkup) -> dict[str, Any]:
    """Return the folder of published data, which only the studies need."""
    root = os.environ.get(VARIABLE)
    if root and not Path(root).is_dir():
        remedy = f"Correct or remove the variable {VARIABLE}."
        found.problems.append(Problem(f"{VARIABLE} names the folder {root}, which does not exist.", remedy))
    present = [name for name in sorted(ORIGINS) if root and (Path(root) / name).is_dir()]
    return {"folder": root, "present": present}


def _memory() -> dict[str, int | None]:
    try:
        from repsurgery.lm.load.memory import free_on_cpu

        free: int | None = free_on_cpu()
    except ImportError:
        pages = {"SC_AVPHYS_PAGES", "SC_PAGE_SIZE"} <= getattr(os, "sysconf_names", {}).keys()
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if pages else None
    return {"free_bytes": free, "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()}


def _size(folder: Path) -> int:
    """Return the bytes of all files below a folder; links, as in the hub's cache, count nothing."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
