"""Which rows of which place a shard holds, to tell whether two of them share any."""

from dataclasses import dataclass

__all__ = ["Extent"]


@dataclass(frozen=True, slots=True)
class Extent:
    """Rows ``start`` to ``stop`` (None: to the end) of a place, given as a digest of what and where it is now."""

    place: str
    start: int = 0
    stop: int | None = None

    def meets(self, other: "Extent") -> bool:
        """Whether some row is in both."""
        return self.place == other.place and _before(self.start, other.stop) and _before(other.start, self.stop)


def _before(start: int, stop: int | None) -> bool:
    return stop is None or start < stop
