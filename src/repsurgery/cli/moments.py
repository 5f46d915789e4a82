"""``repsurgery moments``: compute the per-class moments of sharded vectors and write them to one small file."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from repsurgery.cli.output import say
from repsurgery.cli.terminal import typer
from repsurgery.outputs import check_output, check_output_folder
from repsurgery.progress import progress_bar

if TYPE_CHECKING:
    from repsurgery.scale import Shard

__all__ = ["moments"]

Engine = Literal["local", "ray", "dask"]


def moments(
    sources: Annotated[
        list[str],
        typer.Argument(help="Files or quoted patterns: .npy .safetensors .parquet .feather .arrow .zarr, or hf:NAME."),
    ],
    out: Annotated[Path, typer.Option(help="Output file.")],
    labels: Annotated[
        list[str] | None,
        typer.Option(help="Separate files of labels: a quoted pattern, paired with the vectors in sorted order."),
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="Column, tensor or array of the labels inside the files.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="Column, tensor or array of the vectors. Repeat it for one column per feature."),
    ] = None,
    split: Annotated[str, typer.Option(help="Split of a Hugging Face data set.")] = "train",
    engine: Annotated[Engine, typer.Option(help="Execution engine.")] = "local",
    workers: Annotated[int | None, typer.Option(help="Number of workers.", show_default="one per core")] = None,
    address: Annotated[
        str | None, typer.Option(help="Address of a Ray or Dask cluster.", show_default="start one on this machine")
    ] = None,
    batch_rows: Annotated[
        int | None, typer.Option(help="Rows in memory at a time.", show_default="about 8 MiB of rows")
    ] = None,
    rows_per_shard: Annotated[
        int | None, typer.Option(help="Split larger files into shards of this many rows, so that workers share them.")
    ] = None,
    skip_non_finite: Annotated[
        bool, typer.Option("--skip-non-finite", help="Skip rows with NaN or infinity instead of refusing them.")
    ] = False,
    work_dir: Annotated[
        Path | None, typer.Option(help="Folder for the moments of finished shards.", show_default="OUT.work")
    ] = None,
) -> dict[str, Any]:
    """Compute per-class moments from sharded data. Re-run to resume."""
    from repsurgery.scale import find_shards, make_engine, reduce_shards
    from repsurgery.scale.reduce.shards import WORK_FILES

    check_output(out)
    folder = work_dir or out.with_name(f"{out.name}.work")
    check_output_folder(folder)
    shards = find_shards(
        sources,
        labels=labels or [],
        columns=column or [],
        label_column=label_column,
        split=split,
        rows_per_shard=rows_per_shard,
    )
    check_output(out, inputs=_files(shards))
    check_output_folder(folder, inputs=_files(shards), writes=WORK_FILES)
    with progress_bar("shards", len(shards)) as advance:
        reduced = reduce_shards(
            shards,
            work_dir=folder,
            engine=make_engine(engine, workers=workers, address=address),
            batch_rows=batch_rows,
            skip_non_finite=skip_non_finite,
            announce=lambda receipt, total: advance(1),
        )
    reduced.save(out)
    counts = {str(label): m.count for label, m in reduced.moments.items()}
    kept = sum(receipt.kept for receipt in reduced.receipts)
    listed = ", ".join(f"{label}: {count}" for label, count in counts.items())
    say(
        f"{len(shards)} shards, {reduced.rows} rows of {reduced.moments.dim} features ({listed}), "
        f"{reduced.non_finite} rows left out."
    )
    say(f"{kept} shards were finished before; all are kept in {folder}, which may be removed.")
    say(f"Wrote {out}.")
    rows = {"rows": reduced.rows, "left_out": reduced.non_finite, "features": reduced.moments.dim, "counts": counts}
    return {"file": out, "work_dir": folder, "shards": len(shards), "finished_before": kept, **rows}


def _files(shards: "Sequence[Shard]") -> Iterator[Path]:
    from repsurgery.scale import FileShard

    for shard in shards:
        if isinstance(shard, FileShard):
            yield from {shard.vectors.path, shard.labels.path}
