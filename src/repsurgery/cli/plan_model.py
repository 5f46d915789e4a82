"""What ``repsurgery plan --model`` shows: the memory that a model needs, beside what is free."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from repsurgery.cli.output import say, say_table
from repsurgery.cli.show import in_bytes

if TYPE_CHECKING:
    from repsurgery.lm import MemoryPlan

__all__ = ["show_memory"]

SMALLER = ({"dtype": "bfloat16"}, {"batch": 1}, {"batch": 1, "dtype": "bfloat16"})
"""What is tried for a model that does not fit, the mildest change first."""


def show_memory(model: str, **how: Any) -> dict[str, Any]:
    """Print the parts of `lm.plan_memory` for ``model``, and whether they fit."""
    from repsurgery.lm import plan_memory
    from repsurgery.studies.common.report.tables import Table

    plan = plan_memory(model, **how)
    rows = (
        ("weights", in_bytes(plan.weights), f"{plan.parameters:,} parameters in {plan.dtype}"),
        ("cache", in_bytes(plan.cache), f"{in_bytes(plan.cache_per_token)} per token of a text"),
        ("logits", in_bytes(plan.logits), "of one step, and to draw from them"),
        ("working memory", in_bytes(plan.working), "of one layer that reads padded prompts"),
        ("program", in_bytes(plan.program), "Python, PyTorch and Transformers"),
        ("total", in_bytes(plan.total), "free: unknown" if plan.free is None else f"free: {in_bytes(plan.free)}"),
    )
    title = f"{plan.model} on {plan.device}: batch {plan.batch}, {plan.tokens} tokens"
    say_table(Table(title, ("part", "memory", "what"), rows, "", keys=1))
    verdict = _verdict(plan, model, how)
    say(verdict)
    return asdict(plan) | {"total": plan.total, "fits": plan.fits, "verdict": verdict}


def _verdict(plan: "MemoryPlan", model: str, how: dict[str, Any]) -> str:
    needed = f"about {in_bytes(plan.total)}"
    if plan.free is None:
        return f"It needs {needed}; how much is free on {plan.device} is not known."
    if plan.fits:
        return f"It fits: it needs {needed} of {in_bytes(plan.free)} that are free on {plan.device}."
    return (
        f"It does not fit: it needs {needed}, and {in_bytes(plan.free)} are free on {plan.device}. {_way(model, how)}"
    )


def _way(model: str, how: dict[str, Any]) -> str:
    """Return what makes the model fit."""
    from repsurgery.lm import plan_memory

    for change in SMALLER:
        smaller = plan_memory(model, **{**how, **change})
        if smaller.fits:
            flags = " ".join(f"--{name} {value}" for name, value in change.items())
            return f"With {flags} it needs about {in_bytes(smaller.total)} and fits."
    return "Choose a smaller model or fewer --tokens, or distribute it over several devices with --device auto."
