"""What a function that scores texts tells steering blocks of their prompts, which a pass alone does not show."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from repsurgery.errors import PassError
from repsurgery.lm.steer.placement import Placement
from repsurgery.lm.steer.positions import Texts
from repsurgery.lm.steer.threads import acting_thread

__all__ = ["NO_PROMPTS", "reading_texts", "require_known", "stated_texts"]

NO_PROMPTS = Texts(
    None,
    "A plain text does not say where its prompt ends. Pass what lm.generate returns (or lm.Generation values of your "
    "own), score prompts and continuations with lm.log_likelihoods, or steer with positions='all'.",
)
"""What a function states that scores plain texts."""

_STATED: dict[threading.Thread, list[Texts]] = {}


@contextmanager
def reading_texts(texts: Texts | Sequence[int]) -> Iterator[None]:
    """State, while the block runs, the prompts of the texts that this thread's passes outside ``generate`` read.

    Every row of such a pass is a whole text, padded on the right, or the rest of one after a cache.

    Parameters
    ----------
    texts : Texts or sequence of int
        The length of each row's prompt in tokens.
    """
    stated, thread = texts if isinstance(texts, Texts) else Texts(tuple(texts)), acting_thread()
    _STATED.setdefault(thread, []).append(stated)
    try:
        yield
    finally:
        _STATED[thread].pop()
        if not _STATED[thread]:
            del _STATED[thread]


def stated_texts() -> Texts | None:
    """Return what the innermost `reading_texts` of this thread states."""
    # workers of a parallel pass act for the thread that reads the texts
    stated = _STATED.get(acting_thread()) if _STATED else None
    return stated[-1] if stated else None


def require_known(placed: Sequence[Placement], texts: Texts, *, caller: str) -> None:
    """Raise a `PassError` where a steering acts at positions that are unknown in ``texts``."""
    for one in placed:
        if texts.refuses(one.positions):
            raise PassError(
                f"{caller} cannot tell positions={one.positions!r} of the steering at {one.site!r}. {texts.remedy}"
            )
