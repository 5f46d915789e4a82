"""``repsurgery apply``: steer vectors in a file, or the states of texts."""

from pathlib import Path
from typing import Annotated, Any, Literal

from repsurgery.cli.options import Chat, Device, Dtype, Scale
from repsurgery.cli.output import say
from repsurgery.cli.terminal import typer
from repsurgery.errors import OptionsError

__all__ = ["OTHER_NAMES", "apply"]

OTHER_NAMES = {"text": "--text-column"}
"""What the library calls some of the options."""


def apply(
    file: Annotated[str, typer.Argument(help="Steering file, a name of the zoo, or hub:OWNER/NAME.")],
    source: Annotated[
        Path,
        typer.Argument(
            metavar="X", help="Vectors: .npy, .safetensors or .parquet. Or texts: .csv, .tsv, .jsonl or .parquet."
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="File to write; its ending names the format: .npy, .safetensors, .parquet.")
    ],
    strength: Annotated[
        float | None,
        typer.Option(help="0 leaves vectors unchanged, 1 is the fitted map.", show_default="as in the file, else 1"),
    ] = None,
    scale: Scale = 1.0,
    column: Annotated[
        list[str] | None,
        typer.Option(help="Column or tensor of the vectors. Repeat it for one column per feature."),
    ] = None,
    label_column: Annotated[
        str | None,
        typer.Option(help="Column or tensor of concept labels, which then decide instead of the gate."),
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="Of vectors: the labels are in this file.")] = None,
    text_column: Annotated[
        str | None, typer.Option("--text-column", "--text", help="Column of the texts.", show_default="text")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Of texts: embedded name, folder, or hub id.", show_default="the model of the steering"),
    ] = None,
    device: Device = None,
    dtype: Dtype = None,
    chat: Chat = False,
    site: Annotated[
        str | None,
        typer.Option(help="Of texts: where their states are read.", show_default="as in the file, else final"),
    ] = None,
    pooling: Annotated[
        Literal["last", "cls", "mean"] | None,
        typer.Option(help="Of texts: how their token states become one row.", show_default="as in the file, else last"),
    ] = None,
    max_length: Annotated[int | None, typer.Option(help="Of texts: largest number of tokens to read.")] = None,
) -> dict[str, Any]:
    """Steer vectors in a file, or the states of texts, and write them to a file."""
    from repsurgery.outputs import check_output
    from repsurgery.steering.places import short_name
    from repsurgery.workflows.apply import apply_to_texts, apply_to_vectors, holds_texts
    from repsurgery.workflows.steerings import open_steering

    texts = holds_texts(source, text_column)
    of_vectors: dict[str, Any] = {"--column": column, "--labels": labels}
    of_texts: dict[str, Any] = {"--text-column": text_column, "--model": model, "--device": device, "--dtype": dtype}
    of_texts |= {"--chat": chat or None, "--site": site, "--pooling": pooling, "--max-length": max_length}
    given = [flag for flag, value in (of_vectors if texts else of_texts).items() if value is not None]
    if given:
        kinds = ("texts", "vectors") if texts else ("vectors", "texts")
        raise OptionsError(f"{source} holds {kinds[0]}; {', '.join(given)} is for {kinds[1]}. Leave it out.")
    check_output(out, inputs=[file, source, labels, model])
    opened = open_steering(file, site, strength, scale=scale, labelled=True)
    opened.warn_about_strength()
    read = ""
    if texts:
        done, read = apply_to_texts(
            *(opened, source, out),
            text=text_column or "text",
            label_column=label_column,
            model=model,
            device=device,
            dtype=dtype,
            chat=chat,
            pooling=pooling,
            max_length=max_length,
        )
    else:
        columns = column or ()
        done = apply_to_vectors(opened, source, out, columns=columns, label_column=label_column, labels=labels)
    used = opened.placement.strength
    by = "by their labels" if label_column or labels else f"by the gate '{opened.placement.function.gate.kind}'"
    if read:
        say(f"Read {read}.")
    say(f"Applied {file} at strength {used:g} to {done.rows:,} vectors of {done.features} features.")
    if opened.unmeasured:
        say(f"{short_name(file)}: {opened.unmeasured}", style="dim")
    say(f"Steered share: {done.steered / done.rows:.1%}, {by}.")
    mean, length = done.moved / done.rows, done.length / done.rows
    say(f"Mean displacement: {mean:.3g} over all vectors, whose mean length is {length:.3g}.")
    say(f"Wrote {out} ({done.dtype}).")
    return {
        "file": out,
        "strength": used,
        "rows": done.rows,
        "features": done.features,
        "dtype": done.dtype,
        "steered_share": done.steered / done.rows,
        "mean_displacement": mean,
        "mean_length": length,
        "read": read or None,
    }
