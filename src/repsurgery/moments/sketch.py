"""`Sketch`: a second, independent count of rows, by which moments are checked.

It holds the weighted mean and the centred sum of squares of every column, and the sum of squares along four fixed
directions v, which vᵀSv must equal. It is accumulated from the rows themselves and merged from its own numbers, never
from the scatter or its factor, so that an error in one of the two ways of counting shows as a disagreement.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Matrix, Rows, Vector, freeze
from repsurgery.errors import DataError, ShapeError, SketchError

if TYPE_CHECKING:
    from repsurgery.moments.moments import Moments

__all__ = ["DIRECTIONS", "Sketch", "SketchSum", "directions", "weighted_sizes"]

VERSION = 1
"""Of the directions. Sketches of different versions cannot be added or compared."""
DIRECTIONS = 4
BLOCK_ROWS = 128
"""So many rows stay in the cache while they are converted, centred, multiplied and squared."""
RUN_ROWS = 65_536
"""Rows that are summed about one centre; a later run has its own centre, so that drifting rows lose few digits.

Weighted rows have a centre for each block.
"""
FLOAT32_ROWS = 1024
"""So many rows are multiplied in float32 before the product is added in float64."""
TOLERANCES = {"float64": 1e-11, "float32-products": (FLOAT32_ROWS + 4) * 2.0**-24}
"""The disagreement that is rounding, as a share of the sums of squares that were ever added or removed.

In float32 each addition may lose half a unit in the last place of the sum, and loses it in one direction where one row
is far larger than all others, such as in a unit that fires once.
"""


@cache
def directions(d: int) -> Matrix:
    """Return the fixed directions (d, 4) of the sketch of d columns: normal numbers, from SHA-256 of counters.

    No library generates them, because the streams of random generators change between versions.
    """
    text = f"repsurgery sketch directions {VERSION}|{d}|".encode()
    stream = b"".join(hashlib.sha256(text + str(i).encode()).digest() for i in range(d))
    # the upper 53 bits of each number, as uniform numbers strictly between 0 and 1
    uniform = ((np.frombuffer(stream, dtype="<u8") >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    radius, angle = np.sqrt(-2 * np.log(uniform[0::2])), 2 * np.pi * uniform[1::2]
    normal = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(d, DIRECTIONS)
    return freeze(normal)


def weighted_sizes(codes: NDArray[np.intp], w: Vector | None) -> tuple[float, float]:
    """Return the number G of groups, and Σ m_g² of their weights; row i belongs to the group ``codes[i]``."""
    sizes = np.bincount(np.unique(codes, return_inverse=True)[1], weights=w)
    return float(len(sizes)), float(np.square(sizes).sum())


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """An independent count of the rows behind some `Moments`.

    Attributes
    ----------
    count : int
        The number of rows.
    weight : float
        Their total weight.
    mean, residue : (d,) arrays
        The means of the columns, and what rounding took from them.
    squares : (d + 4,) array
        Σ w (x − mean)² of each column and along each direction.
    bound : (d,) array
        The sums of squares that were ever added or removed, by column; those of a removal grow with w before / w left.
        Rounding is proportional to these: after most rows were removed, what is left is less accurate than its size
        suggests.
    groups : tuple of two floats, or None
        The number of groups and Σ m_g²; None where each row is its own group.
    version : int
        Of the directions.

    Guarantees
    ----------
    It sees a change of scatter, factor, mean, weight or count alone, from a millionth of the trace on, and from a
    thousandth on where products are in float32, because 6e-5 is rounding there
    (test_the_sketch_names_every_corruption_of_one_path).
    What reaches both counts it cannot see, such as a shard that was counted twice; for that there is the `Ledger`
    (test_the_sketch_cannot_see_what_reaches_both_paths).
    """

    count: int
    weight: float
    mean: Vector
    residue: Vector
    squares: Vector
    bound: Vector
    groups: tuple[float, float] | None = None
    version: int = VERSION

    def __post_init__(self) -> None:
        d = len(self.bound) if np.ndim(self.bound) == 1 else 0
        for name in ("mean", "residue", "squares", "bound"):
            array = getattr(self, name)
            size = d + DIRECTIONS if name == "squares" else d
            if not isinstance(array, np.ndarray) or array.dtype != np.float64 or array.shape != (size,):
                raise ShapeError(
                    f"A sketch of {d} columns needs a float64 array {name} of shape ({size},), and got "
                    f"{getattr(array, 'dtype', type(array).__name__)} of shape {np.shape(array)}. The sketch was "
                    "truncated or altered; count the rows again."
                )
            object.__setattr__(self, name, freeze(array))

    @classmethod
    def empty(cls, d: int) -> "Sketch":
        """Return the sketch of no rows."""
        nothing = np.zeros(d)
        return cls(0, 0.0, nothing, nothing, np.zeros(d + DIRECTIONS), nothing)

    @classmethod
    def of(cls, X: Rows, *, sample_weight: Vector | None = None) -> "Sketch":
        """Return the sketch of checked rows (n, d), of which those of weight 0 must have been left out."""
        sum_ = SketchSum(X.shape[1])
        for start in range(0, len(X), BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            sum_.add(X[block].astype(np.float64), None if sample_weight is None else sample_weight[block])
        return sum_.sketch()

    @property
    def dim(self) -> int:
        """The number of columns d."""
        return len(self.bound)

    @property
    def possible(self) -> bool:
        """Whether some rows can have these numbers: all are finite, and none of the bounds is negative."""
        arrays = (self.mean, self.residue, self.squares, self.bound)
        return all(np.isfinite(array).all() for array in arrays) and not (self.bound < 0).any()

    def __add__(self, other: "Sketch") -> "Sketch":
        """Return the sketch of the rows of both, by Chan's formula on every column and direction."""
        self._require_comparable(other)
        if not (self.count and other.count):
            return self if self.count else other
        weight = self.weight + other.weight
        gap = (other.mean - self.mean) + (other.residue - self.residue)
        near, step = (self, gap * (other.weight / weight))
        if other.weight > self.weight:
            near, step = (other, -gap * (self.weight / weight))
        between = self._outer(gap) * (self.weight * other.weight / weight)
        return Sketch(
            self.count + other.count,
            weight,
            *_stepped(near.mean, near.residue, step),
            self.squares + other.squares + between,
            self.bound + other.bound + between[: self.dim],
            self._groups_with(other, 1.0),
            self.version,
        )

    def __sub__(self, other: "Sketch") -> "Sketch":
        """Return the sketch of the rows that remain when those of ``other`` are removed."""
        self._require_comparable(other)
        if not other.count:
            return self
        weight = self.weight - other.weight
        if self.count <= other.count or weight <= 0:
            return Sketch.empty(self.dim)
        away = (self.mean - other.mean) + (self.residue - other.residue)
        # the means of what remains and of what is removed are away · w_all / w_left apart, so that rounding of the two
        # means counts √(w_all / w_left) times
        share = self.weight / weight
        # and the weight that is left has lost a share of its digits
        magnified = np.sqrt(share) + 4 * np.finfo(np.float64).eps * share / TOLERANCES["float64"]
        between = self._outer(away) * (self.weight * other.weight / weight)
        return Sketch(
            self.count - other.count,
            weight,
            *_stepped(self.mean, self.residue, away * (other.weight / weight)),
            self.squares - other.squares - between,
            (self.bound + other.bound) * magnified,
            self._groups_with(other, -1.0),
            self.version,
        )

    def _outer(self, gap: Vector) -> Vector:
        """Return the squares of a gap of means (d,), of each column and along each direction."""
        squares: Vector = np.square(np.concatenate([gap, gap @ directions(self.dim)]))
        return squares

    def _groups_with(self, other: "Sketch", sign: float) -> tuple[float, float] | None:
        if self.groups is None and other.groups is None:
            return None
        (a, aa), (b, bb) = (s.groups or (s.weight, s.weight) for s in (self, other))
        return a + sign * b, aa + sign * bb

    def _require_comparable(self, other: "Sketch") -> None:
        if self.version != other.version or self.dim != other.dim:
            raise SketchError(
                f"A sketch of {self.dim} columns along directions of version {self.version} cannot be combined with "
                f"one of {other.dim} columns and version {other.version}. Count the rows of both again with one "
                "version of repsurgery."
            )

    def with_groups(self, groups: tuple[float, float] | None) -> "Sketch":
        """Return this sketch with other groups; None where each row is its own."""
        return replace(self, groups=None if groups == (self.weight, self.weight) else groups)

    def digest(self) -> str:
        """Return what identifies the rows and the sizes of their groups: equal ones in equal order have equal digests.

        It is computed from the numbers of the sketch, so that rows with the same sums to the last bit share it.
        """
        sha = hashlib.sha256(f"{self.version}|{self.dim}|{self.count}|{self.weight!r}|".encode())
        if self.groups is not None:
            sha.update(f"groups {self.groups!r}|".encode())
        for array in (self.mean, self.residue, self.squares):
            sha.update(array.tobytes())
        return sha.hexdigest()[:32]

    def require_agreement(self, m: "Moments", *, what: str = "These moments") -> None:
        """Raise `SketchError` where ``m`` is not what this sketch counted; ``what`` names the moments.

        Counts and weights, the means, the variance of each column, vᵀSv along each direction, and the number and sizes
        of groups are compared. O(d²) work.
        """
        if self.version != VERSION:
            raise SketchError(
                f"{what} carry a sketch that was counted along directions of version {self.version}, and this "
                f"repsurgery knows version {VERSION} alone. Read them with the version of repsurgery that wrote them."
            )
        problem = self._disagreement(m)
        if problem:
            precise = "" if m.precision == "float64" else ", with precision='float64' if their scales differ widely"
            raise SketchError(
                f"{what} disagree with the sketch that was counted beside them: {problem}. Both come from the same "
                f"rows, by separate sums, so one of them is wrong or was altered. Count the rows again{precise}; if "
                "that does not help, report an error in repsurgery."
            )

    def _disagreement(self, m: "Moments") -> str:
        if not self.possible:
            return "it holds numbers that no rows can have"
        if m.dim != self.dim:
            return f"they have {m.dim} columns, the sketch {self.dim}"
        if m.count != self.count or not abs(m.weight - self.weight) <= 1e-11 * self.weight:
            return f"they state {m.count} rows of weight {m.weight:.12g}, the sketch {self.count} of {self.weight:.12g}"
        if not self.count:
            return ""
        return self._of_means(m) or self._of_squares(m) or self._of_groups(m)

    def _of_means(self, m: "Moments") -> str:
        mean, residue = m.centre
        gap = np.abs((mean - self.mean) + (residue - self.residue))
        spread = np.sqrt((self.bound + _smallest(m)) / self.weight)  # squares of numbers next to zero vanish
        allowed = TOLERANCES[m.precision] * spread + 8 * np.finfo(np.float64).eps * np.abs(mean)
        j = _worst(gap, allowed + _smallest(m))
        return "" if j is None else (
            f"the mean of column {j} is {mean[j]:.12g}, and the sketch counted {self.mean[j]:.12g}"
        )  # fmt: skip

    def _of_squares(self, m: "Moments") -> str:
        V = directions(self.dim)
        sizes = np.concatenate([self.bound, np.square(V).T @ self.bound])
        found = np.concatenate([m.variance * m.weight, _along(m, V)])
        j = _worst(np.abs(found - self.squares), TOLERANCES[m.precision] * sizes + _smallest(m))
        if j is None:
            return ""
        where = f"of column {j}" if j < self.dim else f"along direction {j - self.dim + 1} of {DIRECTIONS}"
        share = abs(found[j] - self.squares[j]) / sizes[j] if sizes[j] > 0 else np.inf
        return (
            f"the sum of squares {where} is {found[j]:.12g}, and the sketch counted {self.squares[j]:.12g}; they "
            f"differ by {share:.1e} of what was added, where {TOLERANCES[m.precision]:.0e} is rounding"
        )

    def _of_groups(self, m: "Moments") -> str:
        alone = (self.weight, self.weight)
        stated = alone if m.groups is None else (m.groups.count, m.groups.squares)
        counted = self.groups or alone
        if all(abs(a - b) <= 1e-9 * abs(b) for a, b in zip(stated, counted, strict=True)):
            return ""
        return f"the number of groups and the sum of their squared sizes are {stated}, and the sketch counted {counted}"


def _along(m: "Moments", V: Matrix) -> Vector:
    """Return vᵀSv (4,) for the columns v of V."""
    if m.factor is not None:
        along: Vector = np.square(m.factor @ V).sum(axis=0)
        return along
    return np.asarray(np.einsum("jk,jk->k", V, m.scatter @ V))


def _smallest(m: "Moments") -> float:
    """Return what sums of numbers next to zero lose, because those have fewer digits."""
    return float(np.finfo(np.float64).smallest_subnormal) * 4 * (m.count + m.dim**2)


def _worst(gap: Vector, allowed: Vector) -> int | None:
    """Return the index of the gap that is most beyond what is allowed; None where all are within it."""
    over = ~(gap <= allowed)  # also true for NaN
    if not over.any():
        return None
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return int(np.argmax(np.where(over, np.nan_to_num(gap / allowed, nan=np.inf), -1.0)))


def _stepped(mean: Vector, residue: Vector, step: Vector) -> tuple[Vector, Vector]:
    """Return mean + residue + step as a rounded mean, and what rounding took from it."""
    small = residue + step
    whole = mean + small
    of_small = whole - mean
    return whole, (mean - (whole - of_small)) + (small - of_small)


class SketchSum:
    """Sums of blocks of rows about a centre, from which a `Sketch` follows."""

    def __init__(self, d: int) -> None:
        self._V = directions(d)
        self._rows = np.ascontiguousarray(self._V.T)
        self._centred, self._along = np.empty((BLOCK_ROWS, d)), np.empty((DIRECTIONS, BLOCK_ROWS))
        self._done: list[Sketch] = []
        self._restart()

    def _restart(self) -> None:
        self._count, self._weight = 0, 0.0
        self._centre: Vector | None = None
        self._totals, self._squares = np.zeros((2, len(self._V) + DIRECTIONS))

    def add(self, rows: Matrix, w: Vector | None = None) -> None:
        """Add at most `BLOCK_ROWS` float64 rows (m, d) with their weights."""
        m, d = rows.shape
        weights = np.ones(m) if w is None else w
        if self._centre is None:
            # relative to one of the rows, so that a constant column has squares of exactly zero
            self._centre = rows[0] + weights @ (rows - rows[0]) / weights.sum()
        y = np.subtract(rows, self._centre, out=self._centred[:m])
        p = self._along[:, :m]
        for k, v in enumerate(self._rows):  # four products with vectors are faster than one with a narrow matrix
            np.dot(y, v, out=p[k])
        self._totals[:d] += weights @ y
        self._totals[d:] += p @ weights
        self._squares[:d] += weights @ np.multiply(y, y, out=y)
        self._squares[d:] += (p * p) @ weights
        self._count += m
        self._weight += float(weights.sum())
        # far from the centre, one heavy row would cost the digits of all others
        if w is not None or self._count >= RUN_ROWS:
            self._close()

    def _close(self) -> None:
        if self._centre is not None:
            shift = self._totals / self._weight
            squares = np.maximum(self._squares - self._totals * shift, 0.0)
            d = len(self._V)
            mean, residue = _stepped(self._centre, np.zeros(d), shift[:d])
            self._done.append(Sketch(self._count, self._weight, mean, residue, squares, squares[:d].copy()))
        self._restart()

    def sketch(self, groups: tuple[float, float] | None = None) -> Sketch:
        """Return the sketch of all rows added so far, which ends the sum; ``groups`` are those of all these rows."""
        self._close()
        whole = reduce(Sketch.__add__, self._done or [Sketch.empty(len(self._V))])
        if not whole.possible:
            raise DataError("The squares of these values exceed float64. Divide X by a constant and fit again.")
        return whole if groups is None else whole.with_groups(groups)
