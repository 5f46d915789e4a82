"""``repsurgery demo``: the demonstration on a real model, in a few minutes."""

from pathlib import Path
from typing import Annotated

from repsurgery.cli.show import show_table
from repsurgery.cli.terminal import Console, escape, typer
from repsurgery.outputs import check_output_folder

__all__ = ["demo"]


def demo(
    quick: Annotated[bool, typer.Option("--quick", help="Run a small version in about one minute.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the report; its subfolder work stores finished work.")] = Path(
        "reports/demo"
    ),
    model: Annotated[str, typer.Option(help="Embedded name, folder or hub id of the model.")] = "smollm2-135m",
    seed: Annotated[int, typer.Option(help="Random seed; equal seeds give equal texts.")] = 0,
) -> None:
    """Steer a real model from rude to courteous with three methods, and report the effect of each."""
    check_output_folder(out, inputs=[Path(model)], writes=("index.html", "report.md", "*.svg"))
    console = Console()
    console.print("[bold]Preparing[/]: PyTorch and Transformers")
    from repsurgery.studies.page import write_report
    from repsurgery.studies.toxicity import make_toxicity_spec, run_toxicity
    from repsurgery.studies.toxicity.report.demo_tables import certificates_table, outcomes_table

    record = run_toxicity(
        make_toxicity_spec("demo-quick" if quick else "demo", model=model, fluency=model, seed=seed),
        work_dir=out / "work",
        announce=lambda step: console.print(f"[bold]{escape(step)}[/]", highlight=False),
    )
    show_table(certificates_table(record), console)
    show_table(outcomes_table(record), console)
    for note in record.notes:
        console.print(f"· {escape(note)}", style="dim", highlight=False)
    path = write_report(record, out)
    console.print(f"Report: {escape(str(path.resolve()))}", soft_wrap=True, highlight=False)
