"""``repsurgery moments``: shards of vectors in, one small file of moments out."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from repsurgery.cli.needs import Console, escape, typer
from repsurgery.outputs import check_output, check_output_folder
from repsurgery.progress import progress_bar

if TYPE_CHECKING:
    from repsurgery.scale import Shard

__all__ = ["moments"]

Engine = Literal["local", "ray", "dask"]


def moments(
    sources: Annotated[
        list[str],
        typer.Argument(help="Paths or quoted patterns: .npy .safetensors .parquet .feather .arrow .zarr, or hf:NAME."),
    ],
    out: Annotated[Path, typer.Option(help="The file to write.")],
    labels: Annotated[
        list[str] | None, typer.Option(help="Labels beside the vectors: a quoted pattern, matched in sorted order.")
    ] = None,
    label_column: Annotated[str | None, typer.Option(help="Labels inside the files: column, tensor or array.")] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="The vectors' column, tensor or array; repeat it for plain columns.")
    ] = None,
    split: Annotated[str, typer.Option(help="Split of a data set.")] = "train",
    engine: Annotated[Engine, typer.Option(help="Who counts.")] = "local",
    workers: Annotated[int | None, typer.Option(help="How many; none: one per core.")] = None,
    address: Annotated[str | None, typer.Option(help="Ray or Dask cluster; none: one of this machine.")] = None,
    batch_rows: Annotated[int | None, typer.Option(help="Rows in memory at a time; none: 8 MiB of them.")] = None,
    rows_per_shard: Annotated[int | None, typer.Option(help="Cut larger files, so that workers share them.")] = None,
    skip_non_finite: Annotated[
        bool, typer.Option("--skip-non-finite", help="Leave out rows with NaN or infinity instead of refusing them.")
    ] = False,
    work_dir: Annotated[Path | None, typer.Option(help="Where finished shards are kept; none: OUT.work.")] = None,
) -> None:
    """Count the moments of shards; run again to go on after an interruption."""
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
        found = reduce_shards(
            shards,
            work_dir=folder,
            engine=make_engine(engine, workers=workers, address=address),
            batch_rows=batch_rows,
            skip_non_finite=skip_non_finite,
            announce=lambda receipt, total: advance(1),
        )
    found.save(out)
    counts = ", ".join(f"{label}: {m.count}" for label, m in found.moments.items())
    kept = sum(receipt.kept for receipt in found.receipts)
    lines = [
        f"{len(shards)} shards, {found.rows} rows of {found.moments.dim} features ({counts}), "
        f"{found.non_finite} rows left out.",
        f"{kept} shards were finished before; all are kept in {folder}, which may be removed.",
        f"Wrote {out}.",
    ]
    for line in lines:
        Console().print(escape(line), soft_wrap=True, highlight=False)


def _files(shards: "Sequence[Shard]") -> Iterator[Path]:
    from repsurgery.scale import FileShard

    for shard in shards:
        if isinstance(shard, FileShard):
            yield from {shard.vectors.path, shard.labels.path}
