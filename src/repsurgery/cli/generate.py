"""``repsurgery generate``: continuations with and without steering, side by side."""

from pathlib import Path
from typing import Annotated, Literal

from repsurgery.cli.terminal import Console, Table, escape, print_sentence, typer

__all__ = ["generate"]

Positions = Literal["all", "generated", "prompt", "last"]


def generate(
    files: Annotated[
        list[Path], typer.Argument(help="Steering files written by fit or save; each is applied separately.")
    ],
    prompt: Annotated[list[str] | None, typer.Option(help="A prompt. Repeat it for several.")] = None,
    prompts_file: Annotated[Path | None, typer.Option(help="Text file with one prompt per line.")] = None,
    model: Annotated[str, typer.Option(help="Embedded name, folder, or hub id.")] = "smollm2-135m",
    site: Annotated[
        list[str] | None,
        typer.Option(help="One site for all files, or one for each.", show_default="the site in each file, else final"),
    ] = None,
    strength: Annotated[
        float | None,
        typer.Option(help="0 leaves vectors unchanged, 1 is the fitted map.", show_default="as in each file, else 1"),
    ] = None,
    kl_budget: Annotated[
        float | None,
        typer.Option(help="Instead of --strength: price in nats per token. Needs files from fit --store-fisher."),
    ] = None,
    positions: Annotated[
        Positions | None,
        typer.Option(help="Token positions that are steered.", show_default="as in each file, else all"),
    ] = None,
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="Continuations per prompt.")] = 1,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Length of each continuation, in tokens.")] = 20,
    seed: Annotated[int, typer.Option(help="Random seed. The same seed gives the same texts.")] = 0,
) -> None:
    """Generate continuations with and without steering, using the same random seed."""
    from repsurgery.workflows.compare import compare
    from repsurgery.workflows.on_policy import read_prompts
    from repsurgery.workflows.steerings import open_steerings

    prompts = [*(prompt or []), *(read_prompts(prompts_file) if prompts_file else [])]
    if not prompts:
        raise typer.BadParameter("give at least one --prompt or a --prompts-file", param_hint="--prompt")
    steerings = open_steerings(files, sites=site or (), strength=strength, positions=positions, kl_budget=kl_budget)
    compared = compare(steerings, prompts, model=model, n=n, max_new_tokens=max_new_tokens, seed=seed)
    console = Console()
    print_sentence(model, console)
    for file, opened, steps in zip(files, steerings, compared.steps, strict=True):
        print_sentence(f"{file.stem}: {opened.words}; {steps.words}", console)
        if opened.unmeasured:
            print_sentence(f"{file.stem}: {opened.unmeasured}", console, style="dim")
    table = Table(show_lines=True)
    for heading in ("prompt", "base", *(escape(file.stem) for file in files)):
        table.add_column(heading, overflow="fold")
    for row in compared.rows:
        table.add_row(escape(row.prompt), *(escape(text) for text in row.texts))
    console.print(table)
