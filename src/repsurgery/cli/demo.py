"""``repsurgery demo``: a small search on the embedded model, with an effect that one can see."""

from pathlib import Path
from typing import Annotated, Any

from repsurgery.cli.options import Device, Dtype
from repsurgery.cli.output import say, step
from repsurgery.cli.terminal import typer
from repsurgery.cli.tune import show_tuned, tuned_document
from repsurgery.outputs import check_output_folder
from repsurgery.studies.tuned.record import TUNE_FILES

__all__ = ["demo"]

EXAMPLES: dict[str, Any] = {"prompts": ("Listen, you idiot. You are", "Nobody asked for your opinion, so"), "seed": 3}
"""Prompts and a seed that were chosen because they show the difference; the search measures it."""


def demo(
    quick: Annotated[bool, typer.Option("--quick", help="A smaller search, in less than 90 seconds.")] = False,
    report: Annotated[
        Path, typer.Option("--report", "--out", help="Folder of the report, the steering file and finished work.")
    ] = Path("reports/demo"),
    model: Annotated[str, typer.Option(help="Embedded name, folder or hub id of the model.")] = "smollm2-135m",
    device: Device = None,
    dtype: Dtype = None,
    kl: Annotated[float, typer.Option(help="Highest price in nats per token.")] = 0.15,
    seed: Annotated[int, typer.Option(help="Random seed; equal seeds give equal texts.")] = 0,
) -> dict[str, Any]:
    """Steer a real model from rude to courteous: a search chooses how, and prompts that took no part confirm it."""
    files = (*TUNE_FILES, "courteous.safetensors", "courteous.lock.json")
    check_output_folder(report, inputs=[Path(model)], writes=files)
    step("Preparing: PyTorch and Transformers")
    import repsurgery as rs
    from repsurgery.tuning.plan import DEMO, DEMO_QUICK

    _glimpse(model, device, dtype, kl)
    tuned = rs.tune(
        "courtesy",
        source="rude",
        target="courteous",
        prompts="provoking",
        model=model,
        device=device,
        dtype=dtype,
        kl=kl,
        plan=DEMO_QUICK if quick else DEMO,
        seed=seed,
        work_dir=report / "work",
        announce=step,
    )
    report.mkdir(parents=True, exist_ok=True)
    lock = tuned.save(report / "courteous.safetensors")
    assert tuned.record is not None
    page = show_tuned(tuned.record, report)
    file = report / "courteous.safetensors"
    say(f"Steering file: {file}")
    say(f'Try it: repsurgery generate {file} --prompt "{EXAMPLES["prompts"][0]}"', wrap=False)
    return tuned_document(tuned, report / "courteous.safetensors", lock, page)


def _glimpse(model: str, device: str | None, dtype: str | None, kl: float) -> None:
    """Show what the ready-made steering of the zoo does, so that there is something to read while the search runs."""
    from repsurgery.workflows.compare import compare
    from repsurgery.workflows.steerings import open_steering

    ready = open_steering("courteous")
    if ready.placement.function.origin.model != model:
        return
    step("What a steering does: two chosen examples, with the one that comes with the package")
    shown = compare([ready], model=model, device=device, dtype=dtype, n=1, progress=False, **EXAMPLES)
    for row in shown.rows:
        for name, text in zip(("prompt", "base", "steered"), (row.prompt, *row.texts), strict=True):
            step(f"  {name:8} {' '.join(text.split())}")
    outcome = ready.placement.function.outcome
    cost = outcome.kl if outcome else float("nan")
    step(f"That one costs {cost:.2g} nats per token. Now a search makes one from labelled texts for at most {kl:g}")
