"""The routes of the server, and how errors reach a client."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from repsurgery.serve.bodies import BodyRoute, RepeatedFieldError
from repsurgery.serve.guard import Guard, refused
from repsurgery.serve.refusals import Refusal
from repsurgery.serve.responses import ChatAnswer, CompletionAnswer, Tally
from repsurgery.serve.schema import ChatRequest, CompletionRequest
from repsurgery.serve.service import Service
from repsurgery.serve.streaming import streamed_answer, whole_answer

__all__ = ["create_app"]

LONGEST_MESSAGE = 300


def create_app(service: Service, *, api_key: str | None = None) -> FastAPI:
    """Return the application that serves ``service``."""
    # no pages of documentation: they load scripts from other servers
    # and no redirects, which would lead to whatever host the client named
    app = FastAPI(title="repsurgery", docs_url=None, redoc_url=None, redirect_slashes=False)
    app.router.route_class = BodyRoute
    app.add_middleware(Guard, limits=service.limits, metrics=service.metrics, api_key=api_key)
    app.add_exception_handler(Refusal, _refusal)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)

    @app.head("/health", include_in_schema=False)
    @app.get("/health")
    async def health() -> JSONResponse:
        return JSONResponse({"status": service.phase}, 200 if service.phase == "ready" else 503)

    @app.get("/metrics")
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": await _models(service)}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        found = [one for one in await _models(service) if one["id"] == name]
        if not found:
            raise Refusal(404, f"The model {name[:128]!r} does not exist.", param="model", code="model_not_found")
        return found[0]

    @app.post("/v1/completions")
    async def completions(body: CompletionRequest, request: Request) -> Response:
        return await _answer(service, body, request)

    @app.post("/v1/chat/completions")
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        return await _answer(service, body, request)

    return app


async def _answer(service: Service, body: CompletionRequest | ChatRequest, request: Request) -> Response:
    prepared = await service.prepare(body)
    job = service.begin(prepared, stream=body.stream)
    form = ChatAnswer if isinstance(body, ChatRequest) else CompletionAnswer
    answer = form(prepared.model, body.alternatives is not None, prepared.warnings)
    tally = Tally(prepared.prompt_tokens)
    headers = {"X-Repsurgery-Seed": str(prepared.seed)}
    if prepared.warnings:
        headers["X-Repsurgery-Warning"] = "; ".join(prepared.warnings).encode("ascii", "replace").decode()
    if body.stream:
        return await streamed_answer(request, job, answer, tally, headers, usage=body.stream_options.include_usage)
    return await whole_answer(request, job, answer, tally, headers)


async def _models(service: Service) -> list[dict[str, Any]]:
    names = await service.steering_names()
    ids = [service.name, *(f"{service.name}+{name}" for name in names)]
    return [{"id": i, "object": "model", "created": service.created, "owned_by": "repsurgery"} for i in ids]


async def _refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return refused(error)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = [str(part) for part in first["loc"] if part != "body"]
    if first["type"] == "json_invalid":
        return refused(Refusal(400, "The body is not valid JSON.", code="invalid_json"))
    message = first["msg"].removeprefix("Value error, ")
    path = ".".join(where)
    stop = "" if message.endswith((".", "?")) else "."
    text = f"{path}: {message}{stop}" if path else f"{message}{stop}"
    return refused(Refusal(400, text[:LONGEST_MESSAGE], param=where[0] if where else None))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error, RepeatedFieldError):
        return refused(Refusal(400, error.detail, code="repeated_field"))
    # FastAPI raises 400 for a body that its parser gives up on
    message = "The body is not valid JSON, or is nested too deeply." if error.status_code == 400 else f"{error.detail}."
    return refused(Refusal(error.status_code, message))
