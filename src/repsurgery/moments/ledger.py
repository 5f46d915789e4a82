"""`Ledger`: the parts that some moments hold, so that one that is repeated, missing or changed can be named."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from repsurgery.errors import DataError, LedgerError

if TYPE_CHECKING:
    from repsurgery.moments.moments import Moments

__all__ = ["Ledger", "Part"]

NAMED = 5
"""An error names at most so many parts."""
ROUNDING = 2.0**-50
"""The share of a total weight that sums and a removal may lose."""


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """Rows that were counted together.

    Attributes
    ----------
    digest : str
        Of their content: equal rows in equal order have equal digests.
    rows : int
    weight : float
        The sum of their weights.
    """

    digest: str
    rows: int
    weight: float

    def __str__(self) -> str:
        return f"{self.digest[:12]} ({self.rows:,} rows of weight {self.weight:g})"


@dataclass(frozen=True, slots=True)
class Ledger:
    """The parts that were added to some moments, and the parts that were removed without having been added whole.

    Guarantees
    ----------
    a + b − b has the parts of a (test_removing_a_part_strikes_it_from_the_ledger).
    A part that is repeated, missing or changed is named
    (test_the_ledger_names_every_omission_repetition_and_change).
    """

    parts: tuple[Part, ...] = ()
    removed: tuple[Part, ...] = ()
    rounding: float = field(default=0.0, repr=False, compare=False)
    """How far the removal of heavy parts may have taken the weight of what is left from the sum of its parts."""
    # the parts once more, grown with them: a stream of thousands of additions looks each of them up
    _held: frozenset[Part] = field(default=frozenset(), repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self._held:
            object.__setattr__(self, "_held", frozenset(self.parts))

    def __add__(self, other: "Ledger") -> "Ledger":
        if not (self.removed or other.removed):
            return Ledger(self.parts + other.parts, (), self.rounding + other.rounding, self._held | other._held)
        return _settled(self.parts + other.parts, self.removed + other.removed, self.rounding + other.rounding)

    def __sub__(self, other: "Ledger") -> "Ledger":
        lost = ROUNDING * sum(p.weight for p in (*self.parts, *other.parts))
        return _settled(self.parts + other.removed, self.removed + other.parts, self.rounding + other.rounding + lost)

    @property
    def rows(self) -> int:
        """The number of rows of all parts together."""
        return sum(p.rows for p in self.parts) - sum(p.rows for p in self.removed)

    @property
    def weight(self) -> float:
        """The weight of all parts together."""
        return sum(p.weight for p in self.parts) - sum(p.weight for p in self.removed)

    def repeated(self) -> tuple[Part, ...]:
        """Return the parts that were counted more than once."""
        return tuple(part for part, times in Counter(self.parts).items() if times > 1)

    def shared(self, other: "Ledger") -> tuple[Part, ...]:
        """Return the parts that ``other`` holds, too."""
        return tuple(dict.fromkeys(part for part in other.parts if part in self._held))

    def require_total(self, count: int, weight: float) -> None:
        """Raise `LedgerError` unless the parts add up to ``count`` rows of this weight."""
        slack = 1e-9 * sum(p.weight for p in (*self.parts, *self.removed)) + self.rounding
        if self.rows != count or abs(self.weight - weight) > slack:
            raise LedgerError(
                f"These moments state {count:,} rows of weight {weight:g}, and the {len(self.parts)} parts in their "
                f"ledger hold {self.rows:,} rows of weight {self.weight:g}. A part was left out or counted in another "
                "way; count the rows again."
            )

    def require(self, plan: Mapping[str, "Part | Moments | Iterable[Part]"]) -> None:
        """Raise `LedgerError`, with the names of the parts, unless these are the parts of a plan.

        Parameters
        ----------
        plan : mapping of name to Part, Moments or several parts
            What should have been counted, each once. Moments stand for the parts in their ledger.
        """
        wanted = {name: Counter(_parts_of(name, entry)) for name, entry in plan.items()}
        expected: Counter[Part] = sum(wanted.values(), Counter())
        counted = Counter(self.parts)
        extra = counted - expected
        known = {part.digest for part in expected}
        problems, replaced = [], [part for part in extra if part not in expected]
        for name, parts in wanted.items():
            for part in parts:
                times = counted[part]
                if times < expected[part]:
                    other = next((p for p in replaced if p.digest == part.digest), None)
                    other = other or next((p for p in replaced if p.digest not in known), None)
                    if other is not None:
                        replaced.remove(other)
                        problems.append(f"{name} has changed: {part} was expected, and {other} was counted")
                    else:
                        problems.append(f"{name} is missing: {part}")
                elif times > expected[part]:
                    problems.append(f"{name} was counted {times} times: {part}")
        problems += [f"a part outside the plan was counted: {part}" for part in replaced]
        problems += [f"a part was removed: {part}" for part in self.removed]
        if problems:
            more = f"; and {len(problems) - NAMED} more" if len(problems) > NAMED else ""
            raise LedgerError(
                f"The parts that were counted are not those of the plan: {'; '.join(problems[:NAMED])}{more}. Count "
                "each part of the plan once, and add the results again."
            )

    def to_plain(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        plain: dict[str, Any] = {
            name: [[p.digest, p.rows, p.weight] for p in getattr(self, name)] for name in ("parts", "removed")
        }
        return {**plain, "rounding": self.rounding} if self.rounding else plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Ledger":
        """Rebuild a ledger from `to_plain`; values that no part can have raise a `DataError`."""
        parts, removed = (tuple(_part(*entry) for entry in plain[name]) for name in ("parts", "removed"))
        rounding = plain.get("rounding", 0.0)
        if isinstance(rounding, bool) or not isinstance(rounding, float | int) or not 0 <= rounding < float("inf"):
            raise DataError(f"The ledger states a rounding of {rounding!r}, which no removal can have.")
        return cls(parts, removed, float(rounding))


def _settled(parts: tuple[Part, ...], removed: tuple[Part, ...], rounding: float) -> Ledger:
    """Strike the parts that were added and removed again."""
    if not removed:
        return Ledger(parts, (), rounding)
    struck = Counter(parts) & Counter(removed)
    return Ledger(_without(parts, struck), _without(removed, struck), rounding)


def _without(parts: tuple[Part, ...], struck: Counter[Part]) -> tuple[Part, ...]:
    left = Counter(struck)
    kept = []
    for part in parts:
        if left[part] > 0:
            left[part] -= 1
        else:
            kept.append(part)
    return tuple(kept)


def _parts_of(name: str, entry: "Part | Moments | Iterable[Part]") -> list[Part]:
    if isinstance(entry, Part):
        return [entry]
    if isinstance(entry, Iterable):
        return list(entry)
    if entry.ledger is None:
        raise LedgerError(f"The moments {name!r} of the plan have no ledger. Count their rows again.")
    return list(entry.ledger.parts)


def _part(digest: Any, rows: Any, weight: Any) -> Part:
    usable = isinstance(digest, str) and type(rows) is int and rows > 0 and isinstance(weight, float | int)
    if not usable or isinstance(weight, bool) or not 0 < weight < float("inf"):
        raise DataError(f"The ledger holds a part {[digest, rows, weight]!r}, which no rows can have.")
    return Part(digest, rows, float(weight))
