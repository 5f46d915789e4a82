"""Draw the picture of the README: ``python docs/tools/picture.py docs/assets/courteous.svg``.

The texts are confirmation texts in the record of the search that made the steering ``courteous`` of the zoo: of the
rudest continuations of the base, those whose score changes most. The effect and the price are those of all texts.
"""

import sys
import textwrap
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

import repsurgery as rs
from repsurgery.studies.tuned.record import read_tune_record

RECORD = Path(__file__).parents[2] / "experiments" / "tune" / "zoo-courteous.json"
ROWS = 4
BASE, STEERED = "#44546a", "#c8502f"


def written() -> list[tuple[str, str, str]]:
    """Return prompts, what the base writes, and what the steered model writes with the same random numbers."""
    pairs = read_tune_record(RECORD)["pairs"]
    changed = sorted(pairs, key=lambda pair: pair["steered_score"] - pair["base_score"])[:ROWS]
    return [(p["prompt"], *(" ".join(p[side].split()) for side in ("base", "steered"))) for p in changed]


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
    rule = "The four largest changes among the rudest continuations of the base. Below: all continuations."
    texts.text(0.0, -0.08, rule, color="#707070", size=8.5, va="top")
    bars.barh([1, 0], [outcome.base, outcome.steered], color=[BASE, STEERED], height=0.55)
    low, high = outcome.base + outcome.low, outcome.base + outcome.high
    bars.plot([low, high], [0, 0], color="black", linewidth=1.5)
    bars.set_yticks([1, 0], ["base model", "steered"])
    bars.set_xlim(0, 1)
    bars.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    bars.set_title(textwrap.fill(outcome.words(), 125), size=9, loc="left", pad=14)
    bars.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw(written(), rs.load("courteous").outcome, Path(sys.argv[1]))
