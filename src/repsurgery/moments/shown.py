"""What moments say of themselves: how many rows of how many classes, their spread, and how they are stored."""

from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from repsurgery.cards import Card, count, name_of, number

if TYPE_CHECKING:
    from repsurgery.moments.by_class import ClassMoments
    from repsurgery.moments.groups import Groups
    from repsurgery.moments.moments import Moments

__all__ = ["class_moments_card", "groups_card", "moments_card"]

MOST_CLASSES = 12
"""So many classes are listed; of the others, their number."""


def moments_card(m: "Moments") -> Card:
    """Return the card of the moments of one set of rows."""
    title = f"Moments of {count(m.count, 'row')} with {count(m.dim, 'feature')}"
    if not m.count:
        return Card(title, "They hold no rows yet; add some with update(X).")
    stored = "dense scatter" if m.factor is None else f"triangular factor of {count(len(m.factor), 'row')}"
    facts = [
        ("norm of the mean", number(float(np.linalg.norm(m.mean)))),
        ("trace of the covariance", number(m.trace)),
        ("stored as", f"{stored}; rows were {m.dtype}, precision {m.precision}"),
    ]
    return Card(title, facts=(*_weights(m), *facts, *_checked([m])))


def _weights(m: "Moments") -> list[tuple[str, str]]:
    facts = [] if m.weight == m.count else [("total weight", number(m.weight))]
    if m.groups is not None:
        facts.append(
            ("independent rows", f"worth {m.effective_count:,.1f}: rows come in {count(m.groups.count, 'group')}")
        )
    return facts


def class_moments_card(moments: "ClassMoments") -> Card:
    """Return the card of the moments of each class."""
    if not len(moments):
        return Card("Moments of no classes", "They hold no rows yet; add some with update(X, z).")
    rows = sum(m.count for m in moments.values())
    title = (
        f"Moments of {count(rows, 'row')} of {count(len(moments), 'class', 'classes')} with "
        f"{count(moments.dim, 'feature')}"
    )
    facts = [(name_of(label, 26), _class(m)) for label, m in islice(moments.items(), MOST_CLASSES)]
    others = len(moments) - len(facts)
    if others:
        facts.append(("…", f"and {count(others, 'more class', 'more classes')}"))
    return Card(title, facts=(*facts, *_checked(list(moments.values()))))


def _checked(parts: "list[Moments]") -> list[tuple[str, str]]:
    """Return what can show that these moments are wrong: their sketch and their ledger."""
    if any(m.sketch is None for m in parts):
        return [("sketch", "none: derived from others, or of version 0.1; nothing independent checks them")]
    counted = sum(len(m.ledger.parts) for m in parts if m.ledger is not None)
    return [("sketch", f"an independent count of the same rows; ledger of {count(counted, 'part')}")]


def _class(m: "Moments") -> str:
    worth = "" if m.groups is None else f" (worth {m.effective_count:,.1f})"
    mean, spread = number(float(np.linalg.norm(m.mean))), number(m.trace)
    return f"{count(m.count, 'row')}{worth}, norm of the mean {mean}, trace of the covariance {spread}"


def groups_card(groups: "Groups") -> Card:
    """Return the card of groups of rows."""
    facts = (("sum of squared sizes", number(groups.squares)), ("spread between groups", number(groups.between)))
    return Card(f"{count(groups.count, 'group')} of rows that are not independent", facts=facts)
