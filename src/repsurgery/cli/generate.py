"""``repsurgery generate``: continuations with and without steering, side by side."""

from pathlib import Path
from typing import Annotated, Any, Literal

from repsurgery.cli.options import Chat, Device, Dtype, Scale
from repsurgery.cli.output import result_console, say
from repsurgery.cli.terminal import Table, escape, typer
from repsurgery.errors import OptionsError

__all__ = ["OTHER_NAMES", "generate"]

OTHER_NAMES = {"sites": "--site"}
"""What the library calls some of the options."""

FEW = 0.25
"""Below this share of steered steps, a steering behind a gate hardly shows in what is written."""

Positions = Literal["all", "generated", "prompt", "last", "assistant"]


def generate(
    files: Annotated[
        list[str] | None, typer.Argument(help="Steering files written by fit or save; each is applied separately.")
    ] = None,
    steering: Annotated[
        list[str] | None,
        typer.Option(help="A steering file, a name of the zoo (repsurgery zoo), or hub:OWNER/NAME. Repeatable."),
    ] = None,
    prompt: Annotated[list[str] | None, typer.Option(help="A prompt. Repeat it for several.")] = None,
    prompts_file: Annotated[
        Path | None, typer.Option(help="Text file with one prompt per line, or .jsonl with messages.")
    ] = None,
    model: Annotated[str, typer.Option(help="Embedded name, folder, or hub id.")] = "smollm2-135m",
    device: Device = None,
    dtype: Dtype = None,
    chat: Chat = False,
    site: Annotated[
        list[str] | None,
        typer.Option(help="One site for all files, or one for each.", show_default="the site in each file, else final"),
    ] = None,
    strength: Annotated[
        float | None,
        typer.Option(help="0 leaves vectors unchanged, 1 is the fitted map.", show_default="as in each file, else 1"),
    ] = None,
    scale: Scale = 1.0,
    kl_budget: Annotated[
        float | None,
        typer.Option(
            help="Instead of --strength and --scale: price in nats per token; for files of tune or fit --store-fisher."
        ),
    ] = None,
    positions: Annotated[
        Positions | None,
        typer.Option(help="Token positions that are steered.", show_default="as in each file, else all"),
    ] = None,
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="Continuations per prompt.")] = 1,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Length of each continuation, in tokens.")] = 20,
    seed: Annotated[int, typer.Option(help="Random seed. The same seed gives the same texts.")] = 0,
) -> dict[str, Any]:
    """Generate continuations with and without steering, using the same random seed."""
    names = [*(files or []), *(steering or [])]
    if not names:
        raise typer.BadParameter(
            "give a steering file, or a name of the zoo such as courteous", param_hint="--steering"
        )
    from repsurgery.lm.chat import ChatText
    from repsurgery.steering.places import short_name
    from repsurgery.workflows.compare import compare
    from repsurgery.workflows.prompts import in_chat, read_prompts
    from repsurgery.workflows.steerings import open_steerings

    prompts = [*(prompt or []), *(read_prompts(prompts_file) if prompts_file else [])]
    prompts = in_chat(prompts) if chat else prompts
    if not prompts:
        raise typer.BadParameter("give at least one --prompt or a --prompts-file", param_hint="--prompt")
    if positions == "assistant" and not any(isinstance(one, ChatText) for one in prompts):
        raise OptionsError("--positions assistant needs conversations. Add --chat, or use --positions generated.")
    how_strong: dict[str, Any] = {"strength": strength, "scale": scale, "kl_budget": kl_budget}
    steerings = open_steerings(names, sites=site or (), positions=positions, **how_strong)
    sampling: dict[str, Any] = {"n": n, "max_new_tokens": max_new_tokens, "seed": seed}
    compared = compare(steerings, prompts, model=model, device=device, dtype=dtype, **sampling)
    titles = [short_name(name) for name in names]
    say(model)
    used = []
    for name, title, opened, steps in zip(names, titles, steerings, compared.steps, strict=True):
        say(f"{title}: {opened.words}; {steps.words}")
        at = opened.placement
        gated = at.function.gate.reads == "rows" and at.strength != 0
        if gated and steps.steered < FEW * steps.steps:
            say(f"{title}: its gate leaves most steps as they are. Fit with --gate always to steer every step.")
        if opened.unmeasured:
            say(f"{title}: {opened.unmeasured}", style="dim")
        how = {"site": at.site, "strength": at.strength, "positions": at.positions}
        used.append({"file": name, **how, "steered_steps": steps.steered, "steps": steps.steps})
    table = Table(show_lines=True)
    for heading in ("prompt", "base", *map(escape, titles)):
        table.add_column(heading, overflow="fold")
    for row in compared.rows:
        table.add_row(escape(row.prompt), *(escape(text) for text in row.texts))
    result_console().print(table)
    texts = [
        {"prompt": row.prompt, "sample": row.sample, "base": row.texts[0], "steered": row.texts[1:]}
        for row in compared.rows
    ]
    return {"model": model, "steerings": used, "texts": texts}
