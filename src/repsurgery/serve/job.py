"""A request at work: its rows, its time limit, and its events on their way from the engine's thread to the client."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from repsurgery.serve.refusals import Refusal

__all__ = ["Job", "Piece", "RowSpec", "TokenScore"]


@dataclass(frozen=True, slots=True, eq=False)
class RowSpec:
    """One choice of a request, ready for the batch.

    Attributes
    ----------
    index : int
        Its number among the choices of the request.
    prompt : list of int
        The tokens that it continues.
    plan : RowPlan
        How it is steered.
    key : bytes
        The key of its noise; see `sample_key`.
    temperature, top_p : float
        A temperature of 0 is greedy.
    max_tokens : int
    stops : sequence of str
    alternatives : int or None
        How many other tokens are scored beside each drawn one; None scores none at all.
    turns : list of bool or None
        Which tokens of the prompt the assistant wrote, where a steering needs to know it.
    """

    index: int
    prompt: list[int]
    plan: Any
    key: bytes
    temperature: float
    top_p: float
    max_tokens: int
    stops: Sequence[str] = ()
    alternatives: int | None = None
    turns: list[bool] | None = None


@dataclass(frozen=True, slots=True)
class TokenScore:
    """A drawn token with its log-probability, and the most probable tokens with theirs, before temperature and top-p.

    ``start`` and ``end`` are its places in the text of the choice.
    """

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Piece:
    """What a choice gained: text, scores, the number of tokens drawn for it, and why it ended (None: it goes on)."""

    index: int
    text: str
    tokens: int
    scores: tuple[TokenScore, ...] = ()
    finish: str | None = None


@dataclass(eq=False)
class Job:
    """The rows of one request, and the events that they have produced and the client has not yet read.

    It is created by the event loop that serves the client; `put` and `fail` are called by the thread of the engine.

    Parameters
    ----------
    specs : sequence of RowSpec
    stream : bool
        Whether the client reads pieces as they come. Otherwise each choice is one piece.
    deadline : float
        The time, by `time.monotonic`, at which the request is ended.
    max_unread : int
        Events that may wait; a client that leaves more of them unread has its request ended.

    Guarantees
    ----------
    A client that reads nothing neither blocks the engine nor fills the memory
    (test_a_client_that_never_reads_is_cut_off).
    """

    specs: Sequence[RowSpec]
    stream: bool
    deadline: float
    max_unread: int
    ended: bool = field(default=False, init=False)
    began: float = field(default_factory=time.monotonic, init=False)

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._unread: deque[Piece | Refusal] = deque()
        self._arrived = asyncio.Event()
        self._first_token = True

    def first_token(self) -> float | None:
        """Return the seconds since the request began when this is called for the first time, and None afterwards."""
        first, self._first_token = self._first_token, False
        return time.monotonic() - self.began if first else None

    def put(self, piece: Piece) -> None:
        """Hand a piece to the client; end the request where the client does not read."""
        if self.ended:
            return
        if len(self._unread) >= self.max_unread:
            self._unread.clear()
            self.fail(Refusal(408, "The stream was ended because the client did not read it.", code="not_read"))
            return
        self._append(piece)

    def fail(self, refusal: Refusal) -> None:
        """End the request with an error."""
        if not self.ended:
            self.ended = True
            self._append(refusal)

    def cancel(self) -> None:
        """End the request without a word: nobody reads it any more, or it was read to its end."""
        self.ended = True

    def _append(self, event: Piece | Refusal) -> None:
        self._unread.append(event)
        try:
            self._loop.call_soon_threadsafe(self._arrived.set)
        except RuntimeError:  # the loop is closed, and the client with it
            self.ended = True

    async def next(self) -> Piece:
        """Return the next piece, or raise the refusal that ended the request."""
        while True:
            # cleared before looking, so that what arrives in between is not missed
            self._arrived.clear()
            try:
                event = self._unread.popleft()
            except IndexError:
                await self._arrived.wait()
                continue
            if isinstance(event, Refusal):
                raise event
            return event
