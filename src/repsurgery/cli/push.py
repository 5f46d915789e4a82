"""``repsurgery push``: share a steering on the Hugging Face hub."""

from pathlib import Path
from typing import Annotated, Any

from repsurgery.cli.output import say
from repsurgery.cli.terminal import typer

__all__ = ["push"]


def push(
    file: Annotated[str, typer.Argument(help="Steering file, or a name of the zoo.")],
    repository: Annotated[str, typer.Argument(help="Repository on the hub, OWNER/NAME; created if it is missing.")],
    licence: Annotated[
        str | None,
        typer.Option("--licence", "--license", help="Licence of the steering, such as apache-2.0."),
    ] = None,
    fitted_on: Annotated[str | None, typer.Option(help="A sentence on the data that it was fitted on.")] = None,
    dataset: Annotated[
        list[str] | None, typer.Option(help="A data set on the hub that it was fitted on, OWNER/NAME. Repeatable.")
    ] = None,
    base_model: Annotated[
        str | None, typer.Option(help="The model's name on the hub.", show_default="as the file says")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    revision: Annotated[str | None, typer.Option(help="Branch to write to.", show_default="main")] = None,
    message: Annotated[str, typer.Option(help="Message of the commit.")] = "Upload a steering",
    out: Annotated[
        Path | None, typer.Option(help="Upload nothing: write the repository to this folder, to read its card.")
    ] = None,
) -> dict[str, Any]:
    """Share a steering on the Hugging Face hub, with a card that states effect, price, certificate and limits.

    The token is that of `hf auth login` or of the variable HF_TOKEN.
    """
    import repsurgery as rs
    from repsurgery.lm.steer.row_steering import as_steering

    steering = as_steering(rs.load(file), caller=f"The file {file}")
    facts: dict[str, Any] = {"licence": licence, "fitted_on": fitted_on, "base_model": base_model}
    facts["datasets"] = dataset or ()
    if out is not None:
        done = str(steering.save_pretrained(out, repository=repository, **facts))
        said = f"Wrote {done}; nothing was uploaded. Read its README.md."
    else:
        how: dict[str, Any] = {"revision": revision, "private": private or None, "message": message}
        done = steering.push_to_hub(repository, **how, **facts)
        said = f"Uploaded {done}. Use it as hub:{repository}"
    say(said)
    return {"repository": repository, "folder" if out else "commit": done}
