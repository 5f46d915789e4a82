"""Bodies of requests as JSON in which every field is named once."""

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

__all__ = ["BodyRoute", "RepeatedFieldError"]


class RepeatedFieldError(HTTPException):
    """An object of the body names a field twice; which of the two was meant cannot be known."""

    def __init__(self, name: str) -> None:
        super().__init__(400, f"The body names the field {name[:64]!r} twice in one object. Send it once.")


class BodyRoute(APIRoute):
    """A route whose JSON body is refused where a field is repeated.

    Guarantees
    ----------
    This holds at every depth (test_a_repeated_field_is_refused_at_every_depth).
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, which reads the body by `_Body`."""
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(_Body(request.scope, request.receive))

        return handle_strictly


class _Body(Request):
    async def json(self) -> Any:
        return json.loads(await self.body(), object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise RepeatedFieldError(name)
        found[name] = value
    return found
