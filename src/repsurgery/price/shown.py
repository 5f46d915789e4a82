"""What a Fisher matrix and a price say of themselves: where they were measured, and on how many positions."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from repsurgery.cards import Card, count, line, listed, name_of, number

if TYPE_CHECKING:
    from repsurgery.price.fisher import Fisher
    from repsurgery.price.price import Price

__all__ = ["fisher_card", "price_card"]


def fisher_card(fisher: "Fisher") -> Card:
    """Return the card of a Fisher matrix."""
    return Card(f"Fisher matrix of next-token distributions on {count(fisher.dim, 'feature')}", facts=_figures(fisher))


def _figures(fisher: "Fisher") -> tuple[tuple[str, str], ...]:
    drawn = f"{count(fisher.samples, 'token')} drawn at each" if fisher.samples else "exact at each"
    mean = 0.5 * float(np.trace(fisher.matrix)) / fisher.dim
    return (
        ("positions", f"{fisher.count:,}, {drawn}" + ("" if fisher.positions == "all" else "; generated ones moved")),
        ("price of a shift", f"{number(mean)} nats per token for a shift of norm 1, on average over directions"),
    )


def price_card(price: "Price") -> Card:
    """Return the card of what the price of a steering follows from."""
    place = "an unnamed site" if price.site is None else f"site {line(price.site)}"
    facts = [("features", f"{price.fisher.dim:,}"), *_figures(price.fisher)]
    if isinstance(price.share, Mapping):
        shares = (f"{name_of(label)} {number(share)}" for label, share in list(price.share.items())[:7])
        rest = [""] * max(len(price.share) - 7, 0)
        facts.append(("steered share", listed([*shares, *rest])))
    elif price.share is not None:
        facts.append(("steered share", f"{number(price.share)} of all positions"))
    held = price.moments
    moved = "none: only a shift can be priced" if held is None else held._card().title.replace("Moments", "those", 1)
    facts.append(("moments", moved))
    verdict = "It predicts what a steering costs in nats per token, and the strength for a budget (kl, strength)."
    return Card(f"Price of a steering at {place}", verdict, tuple(facts))
