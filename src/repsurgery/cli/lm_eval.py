"""``repsurgery lm-eval``: lm-evaluation-harness on steered models."""

from typing import Any

from repsurgery.cli.output import beside_the_result
from repsurgery.cli.terminal import typer

__all__ = ["SETTINGS", "lm_eval"]

SETTINGS = {
    "allow_extra_args": True,
    "allow_interspersed_args": False,
    "ignore_unknown_options": True,
    "help_option_names": [],
}
"""Every argument after the verb is passed to the harness, including ``--help``."""


def lm_eval(context: typer.Context) -> dict[str, Any]:
    """Run lm-evaluation-harness on steered models; all arguments are those of lm-eval.

    It adds the model type 'repsurgery' and the task 'wikitext2_local'. For example: run --model repsurgery --model_args
    pretrained=smollm2-135m,steering=tone.safetensors --tasks wikitext2_local --limit 2
    """
    from repsurgery.studies.harness import run_harness

    with beside_the_result():
        results = run_harness(context.args)
    return {"results": results}
