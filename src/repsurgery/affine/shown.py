"""What a map says of itself: its structure, and how far it is from leaving vectors as they are."""

from typing import TYPE_CHECKING

import numpy as np

from repsurgery.cards import Card, count, number

if TYPE_CHECKING:
    from repsurgery.affine.base import AffineMap

__all__ = ["map_card", "map_words"]

WIDEST_GAIN = 1024
"""The gain of a dense map is shown up to this width; beyond, it takes longer than a look at an object may."""
_FORMS = {
    "identity": "h ↦ h",
    "translation": "h ↦ h + shift",
    "diagonal": "h ↦ scale · h + offset, coordinate by coordinate",
    "low-rank": "h ↦ scale · h + left (right h) + offset",
    "dense": "h ↦ W h + b",
}


def map_words(m: "AffineMap") -> str:
    """Return the structure of a map in a few words, as in "low-rank map of rank 3"."""
    rank = getattr(m, "rank", None)
    return f"{m.kind} map" if rank is None else f"{m.kind} map of rank {rank}"


def map_card(m: "AffineMap") -> Card:
    """Return the card of a map; it costs O(d²) at most for wide maps."""
    facts = [("form", _FORMS.get(m.kind, m.kind))]
    if m.kind not in ("identity", "translation"):
        facts.append(("distance of W from I", f"{number(_distance(m))} (Frobenius norm)"))
    if m.kind == "translation":
        facts.append(("norm of the shift", number(float(np.linalg.norm(m.bias)))))
    elif m.kind != "identity":
        facts.append(("norm of the constant b", number(float(np.linalg.norm(m.bias)))))
        if m.kind == "diagonal" or m.dim <= WIDEST_GAIN:
            facts.append(("gain", f"{number(m.gain())}: the largest factor by which a direction is stretched"))
    words = map_words(m)
    return Card(f"{words[0].upper()}{words[1:]} on {count(m.dim, 'feature')}", facts=tuple(facts))


def _distance(m: "AffineMap") -> float:
    """Return ‖W − I‖_F, without a d × d matrix where the structure allows it."""
    arrays = m.arrays()
    if m.kind == "diagonal":
        return float(np.linalg.norm(arrays["scale"] - 1))
    if m.kind == "low-rank":
        # ‖cI + LR‖² = c² d + 2c tr(RL) + tr((LᵀL)(RRᵀ))
        c, left, right = float(arrays["scale"]) - 1, arrays["left"], arrays["right"]
        cross = float(np.einsum("ij,ji->", right, left))
        square = c**2 * m.dim + 2 * c * cross + float(np.sum((left.T @ left) * (right @ right.T)))
        return float(np.sqrt(max(square, 0.0)))
    W = m.weight
    diagonal = np.diagonal(W)
    square = float(np.einsum("ij,ij->", W, W)) - float(diagonal @ diagonal) + float(np.square(diagonal - 1).sum())
    return float(np.sqrt(max(square, 0.0)))
