"""Answers on their way to the client: as one body, or as server-sent events."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from repsurgery.serve.job import Job, Piece
from repsurgery.serve.refusals import Refusal
from repsurgery.serve.responses import Answer, Tally

__all__ = ["streamed_answer", "whole_answer"]


async def whole_answer(
    request: Request, job: Job, answer: Answer, tally: Tally, headers: Mapping[str, str]
) -> Response:
    """Return the whole answer once every choice has ended; a client that leaves ends its job."""
    pieces: dict[int, Piece] = {}
    try:
        while len(pieces) < len(job.specs):
            piece = await _unless_gone(request, job)
            pieces[piece.index] = piece
            tally.completion_tokens += piece.tokens
    finally:
        job.cancel()
    choices = [answer.choice(pieces[index]) for index in sorted(pieces)]
    return JSONResponse(answer.body(choices, tally, part=False), headers=dict(headers))


async def streamed_answer(
    request: Request, job: Job, answer: Answer, tally: Tally, headers: Mapping[str, str], *, usage: bool
) -> Response:
    """Return a stream of events, once there is a first one: a request that fails before it gets a proper status."""
    try:
        first = await _unless_gone(request, job)
    except BaseException:
        job.cancel()
        raise
    return _EventStream(job, _events(job, first, answer, tally, usage=usage), headers)


class _EventStream(StreamingResponse):
    """Server-sent events of a job, which ends with the response, however that ends."""

    media_type = "text/event-stream"

    def __init__(self, job: Job, events: AsyncIterator[bytes], headers: Mapping[str, str]) -> None:
        super().__init__(events, headers={**headers, "Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._job.cancel()


async def _events(job: Job, first: Piece, answer: Answer, tally: Tally, *, usage: bool) -> AsyncIterator[bytes]:
    opened: set[int] = set()
    running = len(job.specs)
    piece = first
    try:
        while True:
            choice = answer.opening(piece.index)
            if choice is not None and piece.index not in opened:
                yield _event(answer.body([choice], None, part=True, last=False))
            opened.add(piece.index)
            tally.completion_tokens += piece.tokens
            running -= piece.finish is not None
            last = not running and not usage
            yield _event(answer.body([answer.gained(piece)], None, part=True, last=last))
            if not running:
                break
            piece = await job.next()
        if usage:
            yield _event(answer.body([], tally, part=True))
    except Refusal as refusal:
        yield _event(refusal.body)
    yield b"data: [DONE]\n\n"


def _event(body: Any) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


async def _unless_gone(request: Request, job: Job) -> Piece:
    """Return the next piece of ``job``, or raise a `Refusal` when the client is gone."""
    piece, gone = asyncio.ensure_future(job.next()), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({piece, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not piece.done():
            raise Refusal(499, "The client has closed the connection.", code="client_gone")
        return piece.result()
    finally:
        piece.cancel()
        gone.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
