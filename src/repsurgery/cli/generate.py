"""``repsurgery generate``: what a model writes, untouched and steered, side by side."""

from pathlib import Path
from typing import Annotated, Literal

from repsurgery.cli.needs import Console, Table, escape, typer

__all__ = ["generate"]

Positions = Literal["all", "generated", "prompt", "last"]


def generate(
    files: Annotated[list[Path], typer.Argument(help="Steerings to compare: files written by fit or save.")],
    prompt: Annotated[list[str] | None, typer.Option(help="A prompt; repeat it for several.")] = None,
    prompts_file: Annotated[Path | None, typer.Option(help="One prompt per line.")] = None,
    model: Annotated[str, typer.Option(help="Embedded name, folder, or hub id.")] = "smollm2-135m",
    site: Annotated[
        list[str] | None,
        typer.Option(help="One for all files, or one for each.  [default: the site in each file, else final]"),
    ] = None,
    strength: Annotated[
        float | None,
        typer.Option(help="0: not at all. 1: as fitted.  [default: the strength in each file, else 1]"),
    ] = None,
    positions: Annotated[
        Positions | None,
        typer.Option(help="Which positions are steered.  [default: the positions in each file, else all]"),
    ] = None,
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="Continuations of each prompt.")] = 1,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Length of a continuation.")] = 20,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal texts.")] = 0,
) -> None:
    """Continue prompts without steering and under each file, with the same noise."""
    from repsurgery.workflows.compare import compare
    from repsurgery.workflows.steerings import open_steerings

    prompts = [*(prompt or []), *(_lines(prompts_file) if prompts_file else [])]
    if not prompts:
        raise typer.BadParameter("give at least one --prompt or a --prompts-file", param_hint="--prompt")
    sites = site or ()
    used = open_steerings(files, sites=sites, strength=strength, positions=positions)
    found = compare(
        files,
        prompts,
        model=model,
        sites=sites,
        strength=strength,
        positions=positions,
        n=n,
        max_new_tokens=max_new_tokens,
        seed=seed,
    )
    console = Console()
    for line in (model, *(f"{file.stem}: {one.words}" for file, one in zip(files, used, strict=True))):
        console.print(escape(line), soft_wrap=True, highlight=False)
    table = Table(show_lines=True)
    for heading in ("prompt", "base", *(escape(file.stem) for file in files)):
        table.add_column(heading, overflow="fold")
    for row in found:
        table.add_row(escape(row.prompt), *(escape(text) for text in row.texts))
    console.print(table)


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
