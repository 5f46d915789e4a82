"""Maps that stretch some direction a great deal, in the words of a note; a report of older records needs them too."""

from collections.abc import Sequence

from repsurgery.steering.advice import GAIN_LIMIT
from repsurgery.studies.toxicity.record import Configured

__all__ = ["gain_notes"]


def gain_notes(configurations: Sequence[Configured]) -> list[str]:
    """Return a note on the configurations whose map stretches some direction a great deal, with the remedy."""
    gains = {c.name: _gain(c) for c in configurations}
    large = [f"{name!r} ({gain:.3g}-fold)" for name, gain in gains.items() if gain > GAIN_LIMIT]
    if not large:
        return []
    return [
        f"The map stretches some direction a great deal: {', '.join(large)}. Noise in new vectors grows as much, and "
        "the model may be damaged. Add labelled texts, or add shrinkage=pooled to the configuration."
    ]


def _gain(c: Configured) -> float:
    # an older record has the gain in its certificate alone
    return float(c.facts.get("gain") or (c.certificate or {}).get("gain") or 0.0)
