"""``repsurgery serve``: a model behind OpenAI's interface; each request chooses its steering."""

import logging
import os
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from repsurgery.cli.options import Device, Dtype, name_in
from repsurgery.cli.output import current_form, write_document
from repsurgery.cli.terminal import plain, typer
from repsurgery.errors import MissingExtraError, ParameterError
from repsurgery.serve.engines import ENGINES

__all__ = ["CHOICES", "serve"]

CHOICES = {"engine": ENGINES.names}
"""The parameters whose values plugins add to."""

KEY_VARIABLE = "REPSURGERY_API_KEY"


def serve(
    model: Annotated[str, typer.Option(help="Embedded name, folder, or hub id.")] = "smollm2-135m",
    steering: Annotated[
        list[str] | None,
        typer.Option(
            help="A steering file, which is named by its name without suffix, a name of the zoo, or hub:OWNER/NAME. "
            "Repeatable."
        ),
    ] = None,
    steerings_dir: Annotated[
        Path | None, typer.Option(help="Folder whose steering files are all offered; changes are noticed.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 lets the system choose.")] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(help="Key that requests must send. Set REPSURGERY_API_KEY instead to hide it from other users."),
    ] = None,
    device: Device = None,
    dtype: Dtype = None,
    engine: Annotated[str, typer.Option(callback=name_in(ENGINES), help="What writes the answers.")] = "transformers",
    max_batch: Annotated[int, typer.Option(min=1, help="Most answers that are generated at once.")] = 16,
    max_queue: Annotated[int, typer.Option(min=1, help="Most answers that may wait; more get status 429.")] = 128,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Longest answer; a longer one gets status 400.")] = 1024,
    max_body_bytes: Annotated[int, typer.Option(min=1, help="Largest request; a larger one gets 413.")] = 1 << 20,
    request_seconds: Annotated[float, typer.Option(help="Longest time of a request.")] = 300.0,
    shutdown_seconds: Annotated[float, typer.Option(help="Time that running requests get after SIGTERM.")] = 20.0,
) -> None:
    """Serve a model over HTTP, compatible with OpenAI's clients; each request chooses its steering."""
    try:
        from repsurgery.serve.server import Server, listen
    except ImportError as error:
        if isinstance(error, MissingExtraError):
            raise
        message = f"The server needs FastAPI, uvicorn and prometheus-client ({error}): pip install 'repsurgery[serve]'"
        raise MissingExtraError(message) from error
    from repsurgery import lm
    from repsurgery.lm.load.origin import plain_model_name
    from repsurgery.serve.limits import Limits
    from repsurgery.serve.service import Service
    from repsurgery.serve.sources import check_sources, check_widths

    limits = Limits(
        max_batch=max_batch,
        max_queue=max_queue,
        max_new_tokens=max_new_tokens,
        max_body_bytes=max_body_bytes,
        request_seconds=request_seconds,
        shutdown_seconds=shutdown_seconds,
    )
    key = _key(api_key if api_key is not None else os.environ.get(KEY_VARIABLE))
    sources = check_sources(steering or [], steerings_dir)
    check_widths(sources, model)
    listener = listen(host, port)
    _log_to_stderr(logging.WARNING if current_form().quiet else logging.INFO)
    if key is None and not _loopback(host):
        logging.getLogger("repsurgery.serve").warning("Everyone who reaches %s may use this server; set a key.", host)
    name = plain_model_name(model)
    service = Service(lambda: lm.load(model, device=device, dtype=dtype), name, sources, limits, engine=engine)
    server = Server(service, api_key=key)
    if current_form().json:  # now rather than at the end, because it tells which port the system chose
        at, number = listener.getsockname()[:2]
        url = f"http://{f'[{at}]' if ':' in at else at}:{number}"
        write_document({"url": url, "model": service.name, "steerings": steering or [], "steerings_dir": steerings_dir})
        sys.stdout.flush()
    server.run_on(listener)
    if server.interrupted:
        raise KeyboardInterrupt
    if service.loading:  # its thread cannot be stopped, and must not meet a dying interpreter
        sys.stderr.flush()
        os._exit(0)


def _key(given: str | None) -> str | None:
    """Return the key without space around it, which no client can send, such as the newline at the end of a file."""
    key = None if given is None else given.strip()
    if key is not None and not (key and key.isprintable()):
        raise ParameterError(
            f"The API key is empty, or has characters that no header can hold. Give --api-key or {KEY_VARIABLE} a key "
            "of one line, or neither of them."
        )
    return key


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _OneLine(logging.Formatter):
    """Control characters, as in the names of files, do not act on a terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return plain(super().formatMessage(record))


def _log_to_stderr(level: int) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
    for name, lowest in (("repsurgery", level), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(lowest)
