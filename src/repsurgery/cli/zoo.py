"""``repsurgery zoo``: lists the steerings in this package."""

from typing import Any

from repsurgery.cli.output import say

__all__ = ["zoo"]


def zoo() -> dict[str, Any]:
    """List the steerings in this package, with measured effects and prices; use them by name."""
    import repsurgery as rs
    from repsurgery.cli.prices import price_words, prices_of

    entries = {}
    for name in rs.zoo.names():
        steering = rs.load(rs.zoo.path(name))
        origin, outcome = steering.origin, steering.outcome
        say(f"{name} for {origin.model}, at {origin.site}, strength {origin.strength:.3g}", style="bold")
        say(f"  {outcome.words()}")
        say(f"  {price_words(steering)}")
        files = {"file": rs.zoo.path(name), "lock": rs.zoo.lock(name)}
        entries[name] = {
            **files,
            "origin": origin.to_dict(),
            "outcome": outcome.to_dict(),
            "prices": prices_of(steering),
        }
    say('Use one by its name: repsurgery generate --steering courteous --prompt "Listen, you idiot. You are"')
    return entries
