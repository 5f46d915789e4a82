"""`Rows`: the three splits of a study, and how the concept and the task are coded."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.errors import DataError, LabelError

__all__ = ["SPLITS", "Part", "StudyRows", "random_splits"]

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
    """The rows of one training set: what is learnt from, what is looked at, what is judged by."""

    train: Part
    dev: Part
    test: Part

    def __post_init__(self) -> None:
        for name in SPLITS:
            part = getattr(self, name)
            if len(part) == 0:
                raise DataError(f"The split '{name}' has no rows. Name the splits train, dev and test, or give none.")
        concepts = np.unique(np.concatenate([self.train.z, self.dev.z, self.test.z]))
        if len(concepts) != 2:
            raise LabelError(
                f"The concept has {len(concepts)} values ({', '.join(concepts[:5])}); this study needs two. "
                "Keep the rows of two of them."
            )

    @property
    def has_task(self) -> bool:
        """Whether there is anything to predict beside the concept."""
        return len(np.unique(self.train.y)) > 1

    @property
    def parts(self) -> dict[str, Part]:
        """The splits by name."""
        return {name: getattr(self, name) for name in SPLITS}


def random_splits(n: int, seed: int) -> NDArray[np.str_]:
    """Return one split name per row: 65 % train, 10 % dev, 25 % test, as Bias in Bios has them."""
    bounds = np.rint(np.cumsum(_SHARES) * n).astype(int)
    names = np.repeat(SPLITS, np.diff(bounds, prepend=0))
    return np.random.default_rng(seed).permutation(names)
