"""``repsurgery plan``: estimate the cost of computing the moments of many rows."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from repsurgery.cli.terminal import Console, typer
from repsurgery.errors import ParameterError

if TYPE_CHECKING:
    from repsurgery.scale import Plan, Rates

__all__ = ["plan"]

Storage = Literal["float16", "float32", "float64"]
WORKERS = [1, 8, 64]


def plan(
    rows: Annotated[float, typer.Option(help="Number of rows, such as 1e8.")],
    width: Annotated[int, typer.Option(help="Features per row.")],
    classes: Annotated[int, typer.Option(help="Number of concept labels.")] = 2,
    workers: Annotated[
        list[int] | None, typer.Option(help="Number of workers; repeat it to compare.", show_default="1, 8 and 64")
    ] = None,
    storage: Annotated[Storage, typer.Option(help="Number format of the rows on disk.")] = "float32",
    shards: Annotated[int, typer.Option(help="Number of shards: files, or pieces made by --rows-per-shard.")] = 256,
    measure: Annotated[
        Path | None, typer.Option(help="Measure the speed of this machine for a few seconds, using this folder.")
    ] = None,
) -> None:
    """Estimate the time, memory, disk and network that computing moments needs."""
    from repsurgery.cli.show import show_table
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
    show_table(table, Console())


def _title(p: "Plan") -> str:
    return (
        f"{p.rows:.3g} x {p.width} {p.storage}, {p.classes} classes: {_bytes(p.data_bytes)} to read, "
        f"{p.flops:.3g} operations, {p.shards} parts of {_bytes(p.part_bytes)} ({_bytes(p.work_bytes)} of disk)"
    )


def _row(p: "Plan") -> tuple[str, ...]:
    seconds = (p.read_seconds, p.handle_seconds, p.multiply_seconds, p.write_seconds, p.merge_seconds)
    return (
        str(p.workers),
        *map(_seconds, (*seconds, p.network_seconds, p.seconds)),
        _bytes(p.memory_bytes),
    )


def _caption(rates: "Rates", *, measured: bool) -> str:
    return (
        f"{'Measured' if measured else 'Assumed'}, per worker of one core: {rates.multiply / 1e9:.3g} GFLOP/s, "
        f"{rates.handle / 1e6:.3g} million numbers/s handled, {_bytes(rates.read)}/s of rows, parts written at "
        f"{_bytes(rates.write)}/s and added at {_bytes(rates.load)}/s; network {_bytes(rates.network)}/s (assumed)."
    )


def _bytes(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.3g} {unit}"


def _seconds(value: float) -> str:
    if value < 120:
        return f"{value:.3g} s"
    return f"{value / 60:.3g} min" if value < 7200 else f"{value / 3600:.3g} h"
