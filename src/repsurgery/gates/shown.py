"""What a gate says of itself: which classes it tells apart, and by what rule."""

from typing import TYPE_CHECKING

from repsurgery.cards import Card, count, listed, number, shortened, values

if TYPE_CHECKING:
    from repsurgery.gates.base import Gate

__all__ = ["gate_card", "gate_words"]

_RULES = {
    "always": "Every vector is steered.",
    "labels": "The labels that a call passes decide; without labels it raises an error.",
    "linear": "The class with the highest linear score; one score decides by its sign between two classes.",
    "quadratic": "The class with the highest Gaussian posterior, with a covariance of its own.",
    "mlp": "The class with the highest score of a network with one hidden layer.",
    "classifier": "The class that a fitted classifier predicts.",
    "soft": "Each vector is steered as strongly as a linear score of it says.",
}


def gate_words(gate: "Gate") -> str:
    """Return the kind of a gate and its classes in a few words."""
    classes = f" between {values(gate.classes, 4)}" if gate.classes else ""
    return f"{gate.kind}{classes}"


def gate_card(gate: "Gate") -> Card:
    """Return the card of a gate of any kind, one of a plugin included."""
    facts = [("classes", values(gate.classes, 8))] if gate.classes else []
    if gate.kind == "classifier":
        facts.append(("classifier", type(getattr(gate, "classifier", None)).__name__))
    else:
        shapes = [f"{name} {array.shape}" for name, array in gate.arrays().items()]
        facts += [("arrays", listed(shapes))] if shapes else []
    strengths = getattr(gate, "strengths", None)
    if strengths is not None:
        facts.append(("strength", f"from {number(strengths[0])} to {number(strengths[-1])}"))
    on = "" if gate.dim is None else f" on {count(gate.dim, 'feature')}"
    among = f" of {count(len(gate.classes), 'class', 'classes')}" if gate.classes else ""
    kind = shortened(gate.kind, 40)
    rule = _RULES.get(gate.kind, "" if gate.hard else "Each vector is steered as strongly as its weights say.")
    return Card(f"{kind[:1].upper()}{kind[1:]} gate{among}{on}", rule, tuple(facts))
