"""The data of a study: data sets by name, or the user's own table."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from repsurgery.datasets import (
    ConceptTexts,
    Representations,
    load_bios,
    load_dialect,
    load_dialect_stand_in,
    load_gap,
    load_winobias,
    make_bios,
)
from repsurgery.datasets.synthetic import FEMALE
from repsurgery.errors import DataError, LabelError
from repsurgery.lm.load.folder import cache_root
from repsurgery.studies.fairness.own_data import load_own
from repsurgery.studies.fairness.rows import SPLITS, splits_with_every_concept
from repsurgery.studies.fairness.spec import SYNTHETIC, StudySpec

__all__ = ["SOURCES", "load_data", "splits_of"]

SOURCES: Mapping[str, Callable[..., ConceptTexts]] = MappingProxyType(
    {
        "bios": load_bios,
        "dialect": load_dialect,
        "dialect-stand-in": load_dialect_stand_in,
        "gap": load_gap,
        "winobias": load_winobias,
    }
)
"""Loaders by name; each reads the given folder, or the folder `REPSURGERY_DATA`."""
_DEV = ("dev", "development", "val", "valid", "validation")


def load_data(
    spec: StudySpec, folder: str | os.PathLike[str] | None = None, *, work: Path | None = None
) -> tuple[StudySpec, ConceptTexts | Representations]:
    """Return the data that ``spec`` names, and the specification that suits them; see `load_own` for own tables.

    Concepts are checked before any text is encoded.
    """
    if spec.data not in SOURCES and Path(spec.data).exists():
        return load_own(spec)
    if spec.data == SYNTHETIC:
        place = work or cache_root() / "synthetic"
        place.mkdir(parents=True, exist_ok=True)
        data: ConceptTexts | Representations = _in_words(make_bios(seed=spec.seed, path=place))
    elif spec.data in SOURCES:
        data = SOURCES[spec.data](*(() if folder is None else (folder,)))
    else:
        raise DataError(
            f"There are no data {spec.data!r}: it is neither a file or folder nor one of "
            f"{', '.join([*SOURCES, SYNTHETIC])}."
        )
    _require_concepts(spec, np.unique(np.asarray(data.concepts)))
    return spec, data


def _require_concepts(spec: StudySpec, concepts: NDArray[np.str_]) -> None:
    if len(concepts) != 2:
        shown = ", ".join(map(str, concepts[:5]))
        raise LabelError(f"The concept has {len(concepts)} values ({shown}); this study needs two. Keep two of them.")
    for name in ("source", "target"):
        if getattr(spec, name) not in concepts:
            raise LabelError(
                f"{name} is {getattr(spec, name)!r}; the concepts of {spec.data} are {' and '.join(concepts)}. "
                f"Name them with --set source={concepts[0]} --set target={concepts[1]}."
            )


def splits_of(spec: StudySpec, data: ConceptTexts | Representations) -> NDArray[np.str_]:
    """Return "train", "dev" or "test" for each row, or "" for none: the splits of the data, or random ones.

    Case does not matter, "validation" and its short forms mean dev, and names that begin with "test" mean test.
    """
    if isinstance(data, Representations):
        return _named(len(data), data.splits)
    if not data.splits:
        return splits_with_every_concept(np.asarray(data.concepts), spec.seed)
    names = np.char.lower(np.asarray(data.splits))
    names = np.where(np.char.startswith(names, "test"), "test", names)
    names = np.where(np.isin(names, _DEV), "dev", names)
    unknown = np.unique(names[~np.isin(names, SPLITS)])
    if len(unknown):
        shown = ", ".join(map(repr, unknown[:5].tolist()))
        raise LabelError(
            f"The column of splits contains {shown}; each row must have train, dev (or validation) or test. "
            "Rename them, or remove those rows."
        )
    if "dev" not in names:
        # without a dev split, a tenth of the training rows becomes one
        _rename(names, "train", "dev", 0.1, spec.seed)
    _rename(names, "dev", "train", spec.dev_to_train, spec.seed)
    return names


def _rename(names: NDArray[np.str_], old: str, new: str, share: float, seed: int) -> None:
    rows = np.flatnonzero(names == old)
    names[np.random.default_rng(seed).permutation(rows)[: round(share * len(rows))]] = new


def _in_words(drawn: Representations) -> Representations:
    professions = np.char.add("profession ", np.char.zfill(drawn.labels.astype(str), 2))
    return replace(drawn, labels=professions, concepts=np.where(drawn.concepts == FEMALE, "female", "male"))


def _named(n: int, splits: Mapping[str, slice]) -> NDArray[np.str_]:
    names = np.full(n, "", dtype="<U5")
    for name, rows in splits.items():
        names[rows] = name
    return names
