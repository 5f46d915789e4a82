"""`Peer`: whose tests are run, from which file, and why some of them fail."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Peer"]


@dataclass(frozen=True, slots=True)
class Peer:
    """A package whose published tests are run against this library.

    Attributes
    ----------
    name : str
        The distribution.
    sdist, sha256 : str
        The source distribution that holds the tests.
    files : tuple of str
        The test files that are run.
    explained : mapping of str to str
        Why tests whose names begin so are known to fail.
    """

    name: str
    sdist: str
    sha256: str
    files: tuple[str, ...]
    explained: Mapping[str, str]

    def reason(self, test: str) -> str | None:
        """Return why ``test`` is known to fail; None where it is not."""
        return next((why for start, why in self.explained.items() if test.startswith(start)), None)
