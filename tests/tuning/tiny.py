"""A search on a tiny model: prompts, labelled texts, a scorer that counts words, and small sizes."""

import repsurgery as rs
from repsurgery.datasets import LabelledTexts
from repsurgery.tuning.plan import Plan
from tests.lm.tiny_models import WORDS, texts

PROMPTS = list(dict.fromkeys(texts(120, seed=5, longest=7)))[:48]
PLAN = Plan(writing=20, search=8, confirmation=14, writing_samples=6, samples=3, tokens=8, priced=40, raced=3)
SITES = ("final", "layers.0")


class LetterScorer:
    """The share of the words of a text that begin with w1 or w2; None for the empty text."""

    name, version, digest = "letters", "1", "1" * 64

    def __init__(self):
        self.scored = 0

    def __call__(self, some):
        self.scored += len(some)
        return [share(text.split()) for text in some]


def share(words):
    return sum(word.startswith(("w1", "w2")) for word in words) / len(words) if words else None


def labelled(n=60):
    """Return n texts of each label; those of "high" end in two words that the scorer counts."""
    some = texts(2 * n, seed=8, longest=4)
    ends = [(WORDS[10 + i % 20], WORDS[30 + i % 10])[i % 2] for i in range(2 * n)]
    return LabelledTexts(
        tuple(f"{text} {end} {end}" for text, end in zip(some, ends, strict=True)),
        tuple(("high", "low")[i % 2] for i in range(2 * n)),
        name="letters",
        source="made for tests",
    )


def write_inputs(folder):
    """Write the texts as a table and the prompts as lines, and return both paths."""
    table, prompts = folder / "texts.csv", folder / "prompts.txt"
    some = labelled()
    rows = [f"{text},{label}" for text, label in zip(some.texts, some.labels, strict=True)]
    table.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    prompts.write_text("\n".join(PROMPTS), encoding="utf-8")
    return table, prompts


def tiny_tune(model, work, **changes):
    """Run the search of these tests; ``changes`` are arguments of `tune`."""
    how = {
        **{"source": "high", "target": "low", "prompts": PROMPTS, "model": str(model), "scorer": LetterScorer()},
        **{"plan": PLAN, "sites": SITES, "work_dir": work},
    }
    given = {**how, **changes}
    return rs.tune(given.pop("texts", labelled()), **given)
