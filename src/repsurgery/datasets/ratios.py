"""`sample_ratio`: a balanced sample in which label and concept coincide at a chosen ratio."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from repsurgery.errors import DataError, LabelError, ParameterError, ShapeError

__all__ = ["sample_ratio"]

Indices: TypeAlias = NDArray[np.intp]


def sample_ratio(
    labels: Any,
    concepts: Any,
    ratio: float,
    *,
    label: Any = "positive",
    concept: Any = "AAE",
    per_cell: int = 44_000,
    seed: int = 0,
) -> tuple[Indices, Indices, Indices]:
    """Return the rows of train, dev and test in a shuffled sample where ``ratio`` of each label has its own concept.

    Of the rows with ``label``, ``int(per_cell * ratio)`` have ``concept`` and ``int(per_cell * (1 - ratio))`` the other
    one; of the rows with the other label it is the other way round. The products are truncated as floating-point
    numbers, as in the published runs: 44,000 rows at .7 give 30,799. The first 60% are train, the next 30% dev, the
    rest test, so all three share the ratio.

    Parameters
    ----------
    labels, concepts : array-like of shape (n,)
        Two values each.
    ratio : float
        From 0 to 1; at .5 concept and label are independent.
    label, concept : value of ``labels``, value of ``concepts``
        The pair that coincides; the two other values form the other pair.
    per_cell : int
        Rows of each label in the sample, up to truncation.
    seed : int
        Determines which rows are drawn, and their order.

    Returns
    -------
    train, dev, test : arrays of indices
        Disjoint, each index once. With 44,000 per cell there are 52,800 / 26,399 / 8,801 rows if nothing is truncated,
        and 52,798 / 26,400 / 8,800 otherwise.
    """
    y, z = _is(labels, label, "label"), _is(concepts, concept, "concept")
    if len(y) != len(z):
        raise ShapeError(f"sample_ratio got {len(y)} labels and {len(z)} concepts; give each row both.")
    if not 0 <= ratio <= 1:
        raise ParameterError(f"sample_ratio got ratio={ratio}; it takes a number from 0 to 1.")
    if per_cell < 1:
        raise ParameterError(f"sample_ratio got per_cell={per_cell}; it takes a positive number of rows.")
    together, apart = int(per_cell * ratio), int(per_cell * (1 - ratio))
    rng = np.random.default_rng(seed)
    cells = [(y & z, together), (y & ~z, apart), (~y & z, apart), (~y & ~z, together)]
    drawn = np.concatenate([_draw(rng, np.flatnonzero(cell), count, ratio) for cell, count in cells])
    rng.shuffle(drawn)
    # .6 + .3 instead of .9, because the published sizes come from this sum
    first, second = int(0.6 * len(drawn)), int((0.6 + 0.3) * len(drawn))
    return drawn[:first], drawn[first:second], drawn[second:]


def _is(values: Any, wanted: Any, what: str) -> NDArray[np.bool_]:
    column = np.asarray(values)
    if column.ndim != 1:
        raise ShapeError(f"sample_ratio got {what}s of shape {column.shape}; it needs one per row, shape (n,).")
    present = np.unique(column).tolist()
    if len(present) != 2 or wanted not in present:
        raise LabelError(
            f"sample_ratio needs two {what}s, one of them {wanted!r}; got {present[:5]}. Choose rows of two {what}s, "
            f"and name one with {what}=."
        )
    return np.asarray(column == wanted)


def _draw(rng: np.random.Generator, rows: Indices, count: int, ratio: float) -> Indices:
    if len(rows) < count:
        raise DataError(
            f"sample_ratio needs {count} rows in a cell of label and concept at ratio {ratio}, and one has "
            f"{len(rows)}. Lower per_cell."
        )
    return rng.choice(rows, count, replace=False)
