"""Draw the picture of the README: ``python docs/tools/picture.py docs/assets/courteous.svg``.

The prompts are the first of the embedded provoking ones and the seed is 0, so that nothing is chosen by its result; the
effect and the price are those in the steering file.
"""

import sys
import textwrap
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

import repsurgery as rs
from repsurgery import datasets, lm

PROMPTS = 4
BASE, STEERED = "#44546a", "#c8502f"


def written() -> list[tuple[str, str, str]]:
    """Return prompts, what the base writes, and what the steered model writes with the same random numbers."""
    model, tokenizer = lm.load("smollm2-135m")
    prompts = datasets.load_provoking_prompts()[:PROMPTS]
    how: dict[str, Any] = {"n": 1, "max_new_tokens": 20, "seed": 0, "progress": False}
    base = lm.generate(model, tokenizer, prompts, **how)
    steered = lm.generate(model, tokenizer, prompts, steering=rs.load("courteous"), **how)
    return [(a.prompt, " ".join(a.text.split()), " ".join(b.text.split())) for a, b in zip(base, steered, strict=True)]


def draw(rows: list[tuple[str, str, str]], outcome: Any, path: Path) -> None:
    """Draw texts side by side, and below them the effect with its interval and the price."""
    plt.rcParams.update({"font.family": "DejaVu Sans", "svg.fonttype": "path", "svg.hashsalt": "repsurgery"})
    figure, (texts, bars) = plt.subplots(2, 1, figsize=(10, 5.6), height_ratios=(3.6, 1))
    figure.patch.set_facecolor("white")
    texts.axis("off")
    for column, (title, colour) in enumerate(
        (("prompt", "black"), ("base model", BASE), ("steered: courteous", STEERED))
    ):
        x = (0.0, 0.31, 0.66)[column]
        texts.text(x, 1.0, title, color=colour, weight="bold", size=11, va="top")
        for i, row in enumerate(rows):
            words = textwrap.fill(row[column], 38 if column else 34)
            texts.text(x, 0.88 - 0.235 * i, words, color=colour, size=9.5, va="top", linespacing=1.25)
    bars.barh([1, 0], [outcome.base, outcome.steered], color=[BASE, STEERED], height=0.55)
    low, high = outcome.base + outcome.low, outcome.base + outcome.high
    bars.plot([low, high], [0, 0], color="black", linewidth=1.5)
    bars.set_yticks([1, 0], ["base model", "steered"])
    bars.set_xlim(0, 1)
    bars.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    bars.set_title(textwrap.fill(outcome.words(), 125), size=9, loc="left")
    bars.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw(written(), rs.load("courteous").outcome, Path(sys.argv[1]))
