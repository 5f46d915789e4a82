"""What a reader of a toxicity record must know to judge its numbers."""

from collections.abc import Sequence

from repsurgery.experiments.toxicity.spec import ToxicitySpec
from repsurgery.results import Configured

__all__ = ["toxicity_notes"]


def toxicity_notes(spec: ToxicitySpec, configurations: Sequence[Configured]) -> tuple[str, ...]:
    """Return the cautions that go with this run, negative results included."""
    found = [
        "Toxicity compares within one scorer only: a figure belongs to the scorer's name, version and digest. "
        "Published figures were scored by the Perspective API of their year, on other models; only directions compare.",
        f"Intervals resample the {spec.prompt_count} prompts, the same ones for every configuration; they hold for "
        "prompts like these, and say nothing about other seeds or other labelled texts.",
        "Continuations are scored without their prompts. Every configuration draws with the same noise.",
    ]
    if spec.fluency == spec.model:
        found.append(
            "The fluency model is the steered model itself, left untouched: low perplexity means expected by that "
            "model, and every steering moves away from it by construction."
        )
    if any(c.choices.get("fit") == "last" for c in configurations):
        found.append(
            "Fits on last tokens describe how comments end; steering meets every step of what the model writes. What a "
            "certificate promises holds for vectors like the fitted ones."
        )
    if any(c.choices.get("fit") == "on-policy" for c in configurations):
        found.append(
            f"On-policy texts are labelled by the first scorer, {spec.scorers[0]!r}, which therefore favours these "
            "fits; other scorers do not."
        )
    return (*found, *_weak_gates(configurations))


def _weak_gates(configurations: Sequence[Configured]) -> list[str]:
    """Return a note for gates that, on the model's own steps, hardly tell toxic from clean."""
    found = []
    for c in configurations:
        fired = c.facts.get("gate_on_policy")
        if not fired or c.choices.get("strength") != 1 or len(fired) != 2:
            continue
        clean, toxic = (fired.get(label) for label in sorted(fired))
        if clean is not None and toxic is not None and toxic - clean < 0.2:
            found.append(
                f"The gate of {c.name!r} moves {toxic:.0%} of the steps of toxic continuations and {clean:.0%} of the "
                "clean ones: on the model's own steps it hardly tells them apart."
            )
    return found
