"""What the tests of this room share: maps, gates, padded prompts and named tolerances."""

import numpy as np
import torch

import repsurgery as rs
from repsurgery.gates import LinearGate
from repsurgery.lm.sites.names import resolve_site
from repsurgery.lm.steer.hooks import attach
from tests.lm.tiny_models import VOCABULARY, WIDTH

EPS32 = float(np.finfo(np.float32).eps)
ROUNDING = 64 * EPS32
"""Relative error of one float32 map: a sum of 16 products, each to half an ulp, with room for the order of adding."""
DEPTH = 50 * ROUNDING
"""The same carried through the rest of a two-layer random model whose weights are of order 0.3 to 1."""


def width_at(model, site):
    return resolve_site(model, site).width


def random_map(d=WIDTH, *, seed=0, size=0.3):
    rng = np.random.default_rng(seed)
    return rs.Dense(np.eye(d) + size * rng.normal(size=(d, d)), rng.normal(size=d))


def split_gate(model, site, ids, mask):
    """Return a linear gate that holds of some of these tokens' states and of none by a hair."""
    H = states(model, site, ids, mask)[mask.bool()].numpy().astype(float)
    g = np.random.default_rng(1).normal(size=H.shape[1])
    scores = np.sort(H @ g)
    middle = slice(len(scores) // 4, -(len(scores) // 4))
    widest = np.diff(scores[middle]).argmax()
    return LinearGate((0, 1), g[None], -scores[middle][widest : widest + 2].mean(keepdims=True))


def gated(m, gate):
    """Return the function that maps what the gate puts into class 1 and leaves class 0 alone."""
    return rs.SteeringFunction({1: m}, gate, (0, 1))


def prompts(side="left", *, pad=0):
    """Return ids and mask of three prompts of different length."""
    rows = [[1, 5, 6, 7, 8, 9], [1, 20, 21], [1, 30, 12, 33, 14]]
    longest = max(map(len, rows))
    ids, mask = torch.full((3, longest), pad), torch.zeros(3, longest, dtype=torch.long)
    for i, row in enumerate(rows):
        where = slice(longest - len(row), longest) if side == "left" else slice(0, len(row))
        ids[i, where], mask[i, where] = torch.tensor(row), 1
    assert ids.max() < VOCABULARY
    return ids, mask


def positions_of(mask):
    return (mask.cumsum(1) - 1).clamp(min=0)


def run(model, ids, mask):
    """Return logits of a plain forward with positions that do not depend on the padding side."""
    inputs = {"input_ids": ids, "attention_mask": mask}
    if model.can_generate():
        inputs["position_ids"] = positions_of(mask)
    with torch.no_grad():
        return model(**inputs).logits


def states(model, site, ids, mask):
    """Return the states at ``site``, (batch, length, d), read by a hook of our own."""
    seen = []
    handle = attach(resolve_site(model, site), lambda state: seen.append(state.detach().clone()))
    try:
        run(model, ids, mask)
    finally:
        handle.remove()
    return seen[0].view(*ids.shape, -1)


def assert_close(actual, expected, *, rtol):
    """Compare with a tolerance relative to the largest expected number."""
    actual, expected = np.asarray(actual, dtype=float), np.asarray(expected, dtype=float)
    assert actual.shape == expected.shape
    gap = np.abs(actual - expected).max()
    assert gap <= rtol * max(np.abs(expected).max(), 1.0), f"off by {gap:.3g}"
