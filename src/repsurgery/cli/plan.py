"""``repsurgery plan``: estimate the cost of computing the moments of many rows, or the memory that a model needs."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from repsurgery.cli.options import Device, Dtype
from repsurgery.cli.output import say_table
from repsurgery.cli.show import in_bytes
from repsurgery.cli.terminal import typer
from repsurgery.errors import OptionsError, ParameterError

if TYPE_CHECKING:
    from repsurgery.scale import Plan, Rates

__all__ = ["plan"]

Storage = Literal["float16", "float32", "float64"]
WORKERS = [1, 8, 64]


def plan(
    rows: Annotated[float | None, typer.Option(help="Moments: number of rows, such as 1e8.")] = None,
    width: Annotated[int | None, typer.Option(help="Moments: features per row.")] = None,
    classes: Annotated[int, typer.Option(help="Moments: number of concept labels.")] = 2,
    workers: Annotated[
        list[int] | None,
        typer.Option(help="Moments: number of workers; repeat it to compare.", show_default="1, 8 and 64"),
    ] = None,
    storage: Annotated[Storage, typer.Option(help="Moments: number format of the rows on disk.")] = "float32",
    shards: Annotated[
        int, typer.Option(help="Moments: number of shards: files, or pieces made by --rows-per-shard.")
    ] = 256,
    measure: Annotated[
        Path | None, typer.Option(help="Moments: measure this machine for a few seconds, using this folder.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Memory of a model before it is loaded: embedded name, folder or hub id.")
    ] = None,
    device: Device = None,
    dtype: Dtype = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Model: texts that are continued at once.", show_default="1")
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Model: length of a text with its continuation.", show_default="1024, or the context"),
    ] = None,
) -> dict[str, Any]:
    """Estimate what computing moments needs (--rows, --width), or the memory that a model needs (--model)."""
    of_model = {"device": device, "dtype": dtype, "batch": batch, "tokens": tokens}
    given = {name: value for name, value in of_model.items() if value is not None}
    if (model is None) == (rows is None and width is None):
        raise OptionsError("Pass either --model, or both --rows and --width.")
    if model is not None:
        from repsurgery.cli.plan_model import show_memory

        return show_memory(model, **given)
    if rows is None or width is None:
        raise OptionsError("A plan for moments needs both --rows and --width.")
    if given:
        raise OptionsError(f"--{next(iter(given))} is for a plan of --model. Leave it out.")
    from repsurgery.scale import DEFAULT_RATES, measure_rates
    from repsurgery.scale import plan as plan_of
    from repsurgery.studies.common.report.tables import Table

    if not (math.isfinite(rows) and rows == int(rows)):
        raise ParameterError(f"rows is {rows}; it must be a whole number, such as 1e8.")
    counts = workers or WORKERS
    # a first plan reports invalid numbers before the machine is measured for seconds
    plan_of(int(rows), width, classes, counts[0], shards=shards, storage=storage)
    rates = DEFAULT_RATES if measure is None else measure_rates(width, folder=measure, storage=storage)
    plans = [plan_of(int(rows), width, classes, w, shards=shards, storage=storage, rates=rates) for w in counts]
    headings = ("workers", "read", "handle", "multiply", "parts", "merge", "network", "all", "memory each")
    table = Table(_title(plans[0]), headings, tuple(map(_row, plans)), _caption(rates, measured=measure is not None))
    say_table(table)
    return {"plans": [asdict(one) | {"seconds": one.seconds} for one in plans], "measured": measure is not None}


def _title(p: "Plan") -> str:
    return (
        f"{p.rows:.3g} x {p.width} {p.storage}, {p.classes} classes: {in_bytes(p.data_bytes)} to read, "
        f"{p.flops:.3g} operations, {p.shards} parts of {in_bytes(p.part_bytes)} ({in_bytes(p.work_bytes)} of disk)"
    )


def _row(p: "Plan") -> tuple[str, ...]:
    seconds = (p.read_seconds, p.handle_seconds, p.multiply_seconds, p.write_seconds, p.merge_seconds)
    return (
        str(p.workers),
        *map(_seconds, (*seconds, p.network_seconds, p.seconds)),
        in_bytes(p.memory_bytes),
    )


def _caption(rates: "Rates", *, measured: bool) -> str:
    return (
        f"{'Measured' if measured else 'Assumed'}, per worker of one core: {rates.multiply / 1e9:.3g} GFLOP/s, "
        f"{rates.handle / 1e6:.3g} million numbers/s handled, {in_bytes(rates.read)}/s of rows, parts written at "
        f"{in_bytes(rates.write)}/s and added at {in_bytes(rates.load)}/s; network {in_bytes(rates.network)}/s "
        "(assumed)."
    )


def _seconds(value: float) -> str:
    if value < 120:
        return f"{value:.3g} s"
    return f"{value / 60:.3g} min" if value < 7200 else f"{value / 3600:.3g} h"
