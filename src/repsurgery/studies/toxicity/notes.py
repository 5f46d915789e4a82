"""What a reader of a toxicity record must know to judge its numbers."""

from collections import Counter
from collections.abc import Sequence

from repsurgery.studies.toxicity.record import Configured
from repsurgery.studies.toxicity.spec import ToxicitySpec

__all__ = ["toxicity_notes"]


def toxicity_notes(spec: ToxicitySpec, configurations: Sequence[Configured]) -> tuple[str, ...]:
    """Return the cautions that go with this run, negative results included."""
    found = [
        "Toxicity compares within one scorer only: a figure belongs to the scorer's name, version and digest. "
        "Published figures were scored by the Perspective API of their year, on other models; only directions compare.",
        f"Intervals and tests are over the {spec.prompt_count} prompts, the same ones for every configuration; they "
        "hold for prompts like these, and say nothing about other seeds or other labelled texts.",
        "Continuations are scored without their prompts. Every configuration draws with the same noise.",
    ]
    if spec.fluency == spec.model:
        found.append(
            "The fluency model is the steered model itself, left untouched: low perplexity means expected by that "
            "model, not good."
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
    if any(c.choices.get("strength", 1) > 1 for c in configurations):
        found.append("Strengths above 1 go beyond the map; no certificate covers them.")
    return (*found, *_unscored(configurations), *_weak_gates(spec, configurations))


def _unscored(configurations: Sequence[Configured]) -> list[str]:
    totals: Counter[str] = Counter()
    for c in configurations:
        totals.update(c.facts["unscored"])
    return [f"The scorer {key!r} failed on {n} texts, which have no score." for key, n in totals.items() if n]


def _weak_gates(spec: ToxicitySpec, configurations: Sequence[Configured]) -> list[str]:
    """Return a note for gates that, on the model's own steps, hardly tell toxic from clean."""
    found = []
    for c in configurations:
        fired = c.facts.get("gate_on_policy", {})
        toxic, clean = fired.get(spec.source), fired.get(spec.target)
        if c.choices.get("strength") == 1 and toxic is not None and clean is not None and toxic - clean < 0.2:
            found.append(
                f"The gate of {c.name!r} moves {toxic:.0%} of the steps of toxic continuations and {clean:.0%} of the "
                "clean ones: on the model's own steps it hardly tells them apart."
            )
    return found
