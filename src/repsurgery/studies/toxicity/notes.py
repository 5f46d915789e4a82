"""The notes of a toxicity record: what a reader must know to judge its numbers."""

from collections import Counter
from collections.abc import Sequence

from repsurgery.studies.common.naming import plain_name
from repsurgery.studies.toxicity.gains import gain_notes
from repsurgery.studies.toxicity.record import Configured, is_published_concept
from repsurgery.studies.toxicity.spec import ToxicitySpec

__all__ = ["toxicity_notes"]


def toxicity_notes(spec: ToxicitySpec, configurations: Sequence[Configured]) -> tuple[str, ...]:
    """Return the cautions that belong to this run, negative results included."""
    published = (
        " Published figures were scored by the Perspective API of their year, on other models; only directions compare."
    )
    notes = [
        "Compare toxicity within one scorer only: a figure belongs to the scorer's name, version and digest."
        + (published if is_published_concept(spec.to_dict()) else ""),
        f"Intervals and tests are over the {spec.prompt_count} prompts, the same for every configuration; they hold "
        "for prompts like these, and say nothing about other seeds or other labelled texts.",
        "Continuations are scored without their prompts. All steerings draw with the same random numbers.",
    ]
    if spec.model in spec.judges:
        subject = "The fluency model" if len(spec.judges) == 1 else f"The fluency model {plain_name(spec.model)!r}"
        notes.append(
            f"{subject} is the steered model itself, without steering: low perplexity means expected by that "
            "model, not good."
        )
    if len(spec.judges) > 1:
        notes.append(
            "Compare perplexities within one fluency model only, because models divide texts into different tokens. "
            "Bits per character do not depend on the tokens."
        )
    notes += [
        f"{c.name!r} continued only the first {c.facts['prompts']} of the {spec.prompt_count} prompts; its measures, "
        "and its differences from the base, are over those prompts."
        for c in configurations
        if "prompts" in c.facts
    ]
    if unread := [c.name for c in configurations if "kl.own" not in c.measures]:
        notes.append(
            f"WikiText and divergences are not measured for {', '.join(map(repr, unread))}: they change the prompt or "
            "how tokens are drawn, and not the likelihoods of one model."
        )
    if any(c.cost_per_token is not None for c in configurations):
        notes.append(
            "The cost of a token is the time of a configuration relative to the base, each writing five continuations "
            "of the first prompt in turn; larger batches may have other ratios."
        )
    if any(c.choices.get("fit") == "last" for c in configurations):
        notes.append(
            "Fits on last tokens describe how texts end, but steering acts on every step that the model writes. The "
            "claims of a certificate hold for vectors like the fitted ones."
        )
    if any(c.choices.get("fit") == "on-policy" for c in configurations):
        notes.append(
            f"On-policy texts are labelled by the first scorer, {spec.scorers[0]!r}, which therefore favours these "
            "fits; other scorers do not."
        )
    if spec.searches():
        notes.append(
            f"Tuned steerings were chosen on training prompts, none of which is evaluated, by the first scorer, "
            f"{spec.scorers[0]!r}, which therefore favours them; other scorers do not."
        )
    if any(c.choices.get("method") == "leace" for c in configurations):
        notes.append(
            "LEACE has no target: it makes the two labels indistinguishable to linear probes, and aims at neither."
        )
    if any(c.choices.get("strength", 1) > 1 for c in configurations):
        notes.append("Strengths above 1 go beyond the map; no certificate covers them.")
    notes += gain_notes(configurations)
    return (*notes, *_unscored(configurations), *_weak_gates(spec, configurations), *_shortfalls(configurations))


def _unscored(configurations: Sequence[Configured]) -> list[str]:
    totals: Counter[str] = Counter()
    for c in configurations:
        totals.update(c.facts["unscored"])
    return [f"The scorer {key!r} failed on {n} texts, which have no score." for key, n in totals.items() if n]


def _weak_gates(spec: ToxicitySpec, configurations: Sequence[Configured]) -> list[str]:
    """Return a note for each gate that hardly separates toxic from clean steps of the model's own texts."""
    notes = []
    for c in configurations:
        fired = c.facts.get("gate_on_policy", {})
        toxic, clean = fired.get(spec.source), fired.get(spec.target)
        if c.choices.get("strength") == 1 and toxic is not None and clean is not None and toxic - clean < 0.2:
            notes.append(
                f"The gate of {c.name!r} moves {toxic:.0%} of the steps of toxic continuations and {clean:.0%} of the "
                "clean ones: on the model's own steps it hardly tells them apart."
            )
    return notes


def _shortfalls(configurations: Sequence[Configured]) -> list[str]:
    """Return a note for each method that claims equal covariances and brings those of held-out rows no closer."""
    notes: dict[tuple[float, float], str] = {}
    for c in configurations:
        if c.held_out is None or "covariances" not in c.held_out["claims"]:
            continue
        gap, before = (c.held_out["by_source"][0][name] for name in ("covariance_gap", "covariance_gap_before"))
        if gap >= before:
            # the scopes of one map have the same gaps, and one note
            notes.setdefault(
                (gap, before),
                f"A negative result: on held-out texts {c.name!r} leaves a covariance gap of {gap:.2f}, not smaller "
                f"than the {before:.2f} before it. So few rows do not determine a covariance in so many dimensions; "
                "more texts would.",
            )
    return list(notes.values())
