"""What the tests of folding and export share: maps with everything in them, logits, and the table of the docs."""

import tempfile
from pathlib import Path

import numpy as np
import torch

from repsurgery import Dense, LowRank, Translation, lm
from repsurgery.errors import FoldError
from tests.lm.tiny_models import FAMILIES, MIXTURES, VOCABULARY, WIDTH, tiny_model

TABLE = Path(__file__).parents[2] / "docs" / "conformance-fold.md"
SITES = ("final", "layers.0.attn", "layers.1.mlp")
CASES = [(f, site) for f in FAMILIES for site in SITES if not (f in MIXTURES and site.endswith("mlp"))]

# Two models that differ only in the order of float operations: each logit is a sum of some 2000 products of numbers of
# the size of the logits' scale, errors add like a random walk (√2000 ≈ 45) and maps of gain below 4 pass them on.
ROUNDING = 4 * 45
EPS = {torch.float32: 2.0**-24, torch.float64: 2.0**-53, torch.bfloat16: 2.0**-9}


def tokens():
    generator = torch.Generator().manual_seed(5)
    return torch.randint(4, VOCABULARY, (2, 7), generator=generator)


def logits(model):
    with torch.no_grad():
        return model(tokens()).logits


def hooked(model, site, steering, **options):
    with lm.steer(model, {site: steering}, **options):
        return logits(model)


def tolerance(reference):
    return ROUNDING * EPS[reference.dtype] * float(reference.abs().max())


def same(a, b):
    return float((a - b).abs().max()) <= tolerance(b)


def width(model, site):
    found = lm.resolve_site(model, site)
    return found.width or found.module.out_features


def dense_map(d, seed=0):
    """Return an invertible map of full rank with a constant."""
    rng = np.random.default_rng(seed)
    return Dense(np.eye(d) + 0.3 * rng.normal(size=(d, d)) / np.sqrt(d), rng.normal(size=d))


def eraser(d, seed=0, rank=2):
    """Return a map like LEACE's: it removes directions, obliquely, about a mean; it has no inverse."""
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(d, rank)), rng.normal(size=(rank, d))
    right = np.linalg.solve(right @ left + 2 * np.eye(rank), right)
    right = np.linalg.solve(right @ left, right)
    return LowRank(-left, right, left @ (right @ rng.normal(size=d)))


def translation(d, seed=0):
    return Translation(np.random.default_rng(seed).normal(size=d))


def labelled_rows(d=WIDTH, n=120):
    rng = np.random.default_rng(3)
    z = rng.integers(0, 2, n)
    return rng.normal(size=(n, d)) + z[:, None] * np.linspace(-1, 1, d), z


def reloaded(model, folder):
    model.save_pretrained(folder)
    return type(model).from_pretrained(folder).eval()


def identical(a, b):
    """Return whether two models have the same weights, bit for bit, and logits equal to rounding.

    Logits themselves may differ in the last bit: grouped matrix products depend on how the weights lie in memory.
    """
    mine, yours = a.state_dict(), b.state_dict()
    alike = mine.keys() == yours.keys() and all(torch.equal(mine[name], yours[name]) for name in mine)
    return alike and same(logits(a), logits(b))


def fold_cell(model, site, m):
    """Return how folding ``m`` at ``site`` fares: measured, not looked up."""
    try:
        folded = lm.fold(model, m, site)
    except FoldError:
        return "refused"
    steered, plain = hooked(model, site, m), logits(model)
    if not same(logits(folded), steered) or same(plain, steered):
        return "WRONG"
    try:
        with tempfile.TemporaryDirectory() as folder:
            exact = identical(reloaded(folded, folder), folded)
        return "exact, reloads" if exact else "RELOADS DIFFERENTLY"
    except FoldError:
        return "exact in memory"


def lora_cell(model, family, site, m):
    import peft

    try:
        with tempfile.TemporaryDirectory() as folder:
            lm.to_lora(model, m, site, folder)
            adapted = peft.PeftModel.from_pretrained(tiny_model(family), folder)
            return "exact" if same(logits(adapted), hooked(model, site, m)) else "WRONG"
    except FoldError:
        return "refused"


def table():
    """Return the docs' table of what folds, reloads and exports, measured on tiny models of every family."""
    head = ["family", *(f"`{site}`" for site in SITES), "translation at `layers.0`"]
    head += ["linear part only, `final`", "LoRA `final`", "LoRA `layers.0.attn`", "LoRA `layers.1.mlp`"]
    rows = []
    for family in FAMILIES:
        model = tiny_model(family)
        cells = [family, *(fold_cell(model, site, eraser(width(model, site))) for site in SITES)]
        cells.append(fold_cell(model, "layers.0", translation(width(model, "layers.0"))))
        d = width(model, "final")
        cells.append(fold_cell(model, "final", Dense(dense_map(d).matrix, np.zeros(d))))
        cells += [lora_cell(model, family, site, eraser(width(model, site))) for site in SITES]
        rows.append(cells)
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
    return INTRODUCTION + "\n".join(lines) + "\n"


INTRODUCTION = """# What folds where

Measured on two-layer random models, one per family, by `tests/lm/test_conformance_fold.py`, which fails when this table
is no longer true (`python -m tests.lm.folding` writes it anew). The map is an eraser of rank 2 with a constant, like
LEACE's, unless the column says otherwise.

- *exact*: folded logits equal hooked logits to float32 rounding and differ from the untouched model's.
- *reloads*: `save_pretrained` and `from_pretrained` give the same weights bit for bit, and so the same logits.
- *in memory*: the architecture has no place for the map's constant, so `save_pretrained` raises `FoldError`;
  `lm.save_folded(..., custom_code=True)` writes it with a Python file beside the weights.
- *refused*: `lm.fold` (`lm.to_lora`) raises `FoldError`, which names the nearest sites that work.

"""

if __name__ == "__main__":
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(table(), encoding="utf-8")
