"""The extras of this package, read from its metadata: which of them installs a missing package."""

import re
from importlib import metadata

__all__ = ["extra_of", "requirements"]


def requirements() -> dict[str, frozenset[str]]:
    """Return the packages that each extra names, without those that they need in turn; "" is the core."""
    found: dict[str, set[str]] = {}
    for line in metadata.requires("repsurgery") or ():
        package, _, marker = line.partition(";")
        extra = re.search(r"extra == ['\"]([\w-]+)", marker)
        found.setdefault(extra[1] if extra else "", set()).add(_normal(re.split(r"[^\w.-]", package.strip())[0]))
    return {extra: frozenset(packages) for extra, packages in found.items()}


def extra_of(package: str) -> str | None:
    """Return the smallest extra that installs ``package``, a distribution or module of its name; None if none does."""
    extras = {extra: names for extra, names in requirements().items() if extra and _normal(package) in names}
    return min(extras, key=lambda extra: (len(extras[extra]), extra), default=None)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
