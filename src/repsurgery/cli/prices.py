"""What a steering costs at the strength of its file: the measured price, and the predicted one."""

from typing import Any

from repsurgery.errors import SurgeryError

__all__ = ["price_words", "prices_of"]


def prices_of(function: Any) -> dict[str, Any]:
    """Return the strength of a steering, and its measured and predicted price there in nats per token, or None."""
    strength = function.origin.effective_strength()
    unit = getattr(function.certificate, "kl", None)  # a natural shift states its price at strength 1
    if unit is None and function.price is not None:
        try:
            unit = function.price.kl(function)
        except SurgeryError:  # such as a gate of which the file stores no share
            unit = None
    measured = None if function.outcome is None else function.outcome.kl
    predicted = None if unit is None else unit * strength**2
    return {"strength": strength, "measured_kl": measured, "predicted_kl": predicted}


def price_words(function: Any) -> str:
    """Return the prices of a steering as a sentence, the measured one first; "" where the file states none."""
    strength, measured, predicted = prices_of(function).values()
    if measured is None and predicted is None:
        return ""
    stated = [] if measured is None else [f"measured {measured:.3g} nats per token"]
    stated += ["the file stores nothing that predicts it"] if predicted is None else [f"predicted {predicted:.3g}"]
    unit = " nats per token" if measured is None else ""
    return f"Price at strength {strength:.3g}: {', '.join(stated)}{unit}."
