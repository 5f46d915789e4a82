"""``repsurgery demo``: the main job, on a real model, in a few minutes."""

from pathlib import Path
from typing import Annotated

from repsurgery.cli.needs import Console, escape, typer
from repsurgery.cli.show import show_table
from repsurgery.outputs import check_output_folder

__all__ = ["demo"]


def demo(
    quick: Annotated[bool, typer.Option("--quick", help="A small run to see that all works.")] = False,
    out: Annotated[Path, typer.Option(help="The folder of the report.")] = Path("reports/demo"),
    model: Annotated[str, typer.Option(help="Embedded name, folder, or hub id.")] = "smollm2-135m",
    seed: Annotated[int, typer.Option(help="Equal seeds give equal texts.")] = 0,
) -> None:
    """Steer a real model from rude to courteous by three methods and report what each does."""
    check_output_folder(out, inputs=[Path(model)], writes=["index.html"])
    console = Console()
    console.print("[bold]Preparing[/]: PyTorch and Transformers")
    from repsurgery.studies.demo.page import write_report
    from repsurgery.studies.demo.run import run_demo
    from repsurgery.studies.demo.scale import FULL, QUICK
    from repsurgery.studies.demo.tables import certificates_table, outcomes_table

    record = run_demo(
        model=model,
        scale=QUICK if quick else FULL,
        seed=seed,
        announce=lambda step: console.print(f"[bold]{escape(step)}[/]", highlight=False),
    )
    show_table(certificates_table(record), console)
    show_table(outcomes_table(record), console)
    for note in record.notes:
        console.print(f"· {escape(note)}", style="dim", highlight=False)
    path = write_report(record, out)
    console.print(f"Report: {escape(str(path.resolve()))}", soft_wrap=True, highlight=False)
