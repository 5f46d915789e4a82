"""What a tuned steering says of itself: its measured effect and price, then how it was chosen."""

from collections import Counter
from typing import TYPE_CHECKING

from repsurgery.cards import Card, count, line, name_of, number

if TYPE_CHECKING:
    from repsurgery.tuning.tune import Tuned

__all__ = ["tuned_card"]


def tuned_card(tuned: "Tuned") -> Card:
    """Return the card of a tuned steering; one that a lock made again has no record of a search."""
    lock, record, function = tuned.lock, tuned.record, tuned.steering
    chosen = lock["candidate"]
    facts = [
        ("chosen", line(f"{chosen.get('method')} at {chosen.get('site')}, fitted on {chosen.get('fit')}")),
        ("strength", f"{number(lock['strength'])} at {line(str(chosen.get('scope')))} positions"),
        ("model", line(lock["model"])),
        ("budget", f"{number(lock['kl'])} nats per token"),
    ]
    if record is None:
        facts.append(("search", "none: a lock made it again"))
    else:
        found = Counter(str(c.get("status")) for c in record.get("candidates", ()))
        total = count(sum(found.values()), "candidate")
        facts.append(("search", f"{total}: " + line(", ".join(f"{n} {status}" for status, n in found.items()))))
        facts += [("note", str(note)) for note in record.get("notes", ())][:3]
    facts.append(("to keep it", 'save("kinder.safetensors"); plot() shows effect against price'))
    said = "Nothing was measured of it." if function.outcome is None else function.outcome.words()
    return Card(f"Tuned steering from {name_of(lock['source'])} to {name_of(lock['target'])}", said, tuple(facts))
