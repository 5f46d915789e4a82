"""`StudyRows`: the three splits of a study, with task labels and concepts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.errors import DataError, LabelError

__all__ = ["SPLITS", "Part", "StudyRows", "random_splits", "require_comparable", "splits_with_every_concept"]

SPLITS = ("train", "dev", "test")
_SHARES = (0.65, 0.10, 0.25)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Rows ``X`` (n, d), task labels ``y`` (n,) and concepts ``z`` (n,) of one split."""

    X: NDArray[Any]
    y: NDArray[np.str_]
    z: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, slots=True, eq=False)
class StudyRows:
    """The rows of one setting, by split."""

    train: Part
    dev: Part
    test: Part

    def __post_init__(self) -> None:
        require_comparable({name: (part.y, part.z) for name, part in self.parts.items()})

    @property
    def has_task(self) -> bool:
        """Whether there are task labels to predict besides the concept."""
        return len(np.unique(self.train.y)) > 1

    @property
    def parts(self) -> dict[str, Part]:
        """The splits by name."""
        return {name: getattr(self, name) for name in SPLITS}


def require_comparable(parts: Mapping[str, tuple[NDArray[np.str_], NDArray[np.str_]]]) -> None:
    """Raise unless every split (labels, concepts) has rows of the same two concepts, and train of two labels if any."""
    for name, (_, z) in parts.items():
        if len(z) == 0:
            raise DataError(
                f"The split '{name}' has no rows. Name the splits train, dev and test, or set an empty split."
            )
    concepts = np.unique(np.concatenate([z for _, z in parts.values()]))
    if len(concepts) != 2:
        raise LabelError(
            f"The concept has {len(concepts)} values ({', '.join(concepts[:5])}); this study needs two. "
            "Keep the rows of two of them."
        )
    for name, (_, z) in parts.items():
        if len(np.unique(z)) < 2:
            raise LabelError(
                f"All {len(z)} rows of the split '{name}' have the concept '{z[0]}'; each split needs both "
                f"{' and '.join(concepts)}. Split the rows again, or add rows."
            )
    labels = np.unique(np.concatenate([y for y, _ in parts.values()]))
    if len(labels) > 1 and len(np.unique(parts["train"][0])) < 2:
        raise LabelError(
            f"All training rows have the label '{parts['train'][0][0]}', one of {len(labels)}; a classifier needs at "
            "least two. Split the rows again, or set an empty label for a study without task."
        )


def random_splits(n: int, seed: int) -> NDArray[np.str_]:
    """Return one split name per row: 65 % train, 10 % dev, 25 % test, as in Bias in Bios."""
    bounds = np.rint(np.cumsum(_SHARES) * n).astype(int)
    names = np.repeat(SPLITS, np.diff(bounds, prepend=0))
    return np.random.default_rng(seed).permutation(names)


def splits_with_every_concept(concepts: NDArray[np.str_], seed: int) -> NDArray[np.str_]:
    """Return random splits; where they would leave a concept out of a split, each concept is split on its own.

    Guarantees
    ----------
    A concept with at least three rows is in every split (test_a_rare_concept_is_in_every_split).
    """
    names = random_splits(len(concepts), seed)
    groups = [np.flatnonzero(concepts == concept) for concept in np.unique(concepts)]
    if all(np.isin(SPLITS, names[rows]).all() for rows in groups) or min(map(len, groups)) < len(SPLITS):
        return names
    for i, rows in enumerate(groups):
        dev, test = (max(1, round(share * len(rows))) for share in _SHARES[1:])
        each = np.repeat(SPLITS, (len(rows) - dev - test, dev, test))
        names[rows] = np.random.default_rng((seed, i)).permutation(each)
    return names
