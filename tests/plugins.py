"""Real plugin packages on disk: modules with a dist-info folder, as pip would install them."""

import textwrap

GOOD = '''
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

import repsurgery as rs
from repsurgery.gates import ScoringGate


class HalfMean(rs.MeanMatching):
    """Move the source mean half of the way to the target."""

    def _pair(self, source, target, s0, s1):
        whole = super()._pair(source, target, s0, s1)
        return replace(whole, map=whole.map.interpolate(0.5))


class Failing(rs.MiMiC):
    """Raise an error of its own in every fit."""

    def _pair(self, source, target, s0, s1):
        raise RuntimeError("no licence")


class Inherited(rs.MiMiC):
    """MiMiC under another name."""


@dataclass(frozen=True, eq=False)
class HalfSpace(ScoringGate):
    classes: tuple
    normal: np.ndarray
    threshold: np.ndarray
    kind = "half-space"

    @property
    def dim(self):
        return len(self.normal)

    def scores(self, X):
        return self.torch_scores(X, self.normal, self.threshold)

    @staticmethod
    def torch_scores(X, normal, threshold):
        return (X @ normal - threshold)[:, None]


def half_space(moments):
    first, second = moments.values()
    normal = second.mean - first.mean
    return HalfSpace(tuple(moments), normal, np.asarray(normal @ (first.mean + second.mean) / 2))


@dataclass(frozen=True)
class Vowels:
    name: str = field(default="vowels", init=False)
    version: str = field(default="1", init=False)
    digest: str = field(default="0" * 64, init=False)

    def __call__(self, texts: Sequence[str]) -> list[float | None]:
        return [sum(c in "aeiou157" for c in t) / len(t) if t.strip() else None for t in texts]
'''
ENTRIES = {
    "repsurgery.methods": {
        "half-mean": "{module}:HalfMean",
        "inherited": "{module}:Inherited",
        "failing": "{module}:Failing",
    },
    "repsurgery.gates": {"half-space": "{module}:half_space"},
    "repsurgery.scorers": {"vowels": "{module}:Vowels"},
}


def write_plugin(folder, package="acme", source=GOOD, entries=ENTRIES):
    """Write the package ``package`` 1.0 with one module of the same name; ``folder`` then belongs on sys.path."""
    folder.mkdir(exist_ok=True)
    (folder / f"{package}.py").write_text(textwrap.dedent(source))
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = []
    for group, names in entries.items():
        lines += [f"[{group}]", *(f"{name} = {value.format(module=package)}" for name, value in names.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder
