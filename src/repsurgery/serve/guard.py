"""What every request passes first: the API key and the size of its body; and where its status is counted."""

import asyncio
import hmac
import logging
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from repsurgery.serve.limits import Limits
from repsurgery.serve.metrics import Metrics
from repsurgery.serve.refusals import Refusal, failed

__all__ = ["Guard", "refused"]

log = logging.getLogger(__name__)
OPEN = "/health"
"""The path that needs no key, so that a supervisor can ask."""
PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/models", "/health", "/metrics")
BODY_SECONDS = 60.0
READ_ON = 8
"""How many times the largest body is read and dropped before a refusal, so that clients see its status."""


def refused(refusal: Refusal) -> JSONResponse:
    """Return the response of a refusal."""
    return JSONResponse(refusal.body, refusal.status, refusal.headers)


class Guard:
    """ASGI middleware that checks the key, reads bounded bodies and counts statuses.

    Guarantees
    ----------
    Wrong keys and large bodies are refused before anything reads them (test_a_wrong_key_is_refused,
    test_an_oversized_body_is_refused, test_a_slow_body_is_refused).
    Every status is counted, also that of an unforeseen error (test_an_unforeseen_error_is_counted_and_hidden).
    """

    def __init__(self, app: ASGIApp, *, limits: Limits, metrics: Metrics, api_key: str | None) -> None:
        self._app, self._limits, self._metrics = app, limits, metrics
        self._key = None if api_key is None else f"Bearer {api_key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"] if scope["path"] in PATHS else "other"

        begun = False

        async def counted(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                self._metrics.request(path, message["status"])
            await send(message)

        try:
            self._check_key(scope)
            body = await self._read(receive) if scope["method"] == "POST" else None
        except Refusal as refusal:
            await refused(refusal)(scope, receive, counted)
            return
        try:
            await self._app(scope, receive if body is None else _replayed(body, receive), counted)
        except Exception:
            if begun:
                raise
            log.exception("A request failed.")
            await refused(failed())(scope, receive, counted)

    def _check_key(self, scope: Scope) -> None:
        if self._key is None or scope["path"] == OPEN:
            return
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        if not hmac.compare_digest(given, self._key):
            message = "The API key is missing or wrong. Send it as the header Authorization: Bearer KEY."
            raise Refusal(401, message, kind="authentication_error", code="invalid_api_key")

    async def _read(self, receive: Receive) -> bytes:
        most = self._limits.max_body_bytes
        body = bytearray()
        size = 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while size <= READ_ON * most:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refusal(499, "The client has closed the connection.")
                    part = message.get("body", b"")
                    size += len(part)
                    if size <= most:
                        body += part
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise Refusal(408, f"The body did not arrive within {BODY_SECONDS:g} seconds.") from None
        if size > most:
            raise Refusal(413, f"The body is larger than {most} bytes.", code="body_too_large")
        return bytes(body)


def _replayed(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def replay() -> Any:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
