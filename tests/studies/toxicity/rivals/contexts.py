"""What a study gives to a rival, on a tiny model and without files."""

from pathlib import Path

import numpy as np

from repsurgery.studies.toxicity.configuration import parse_line
from repsurgery.studies.toxicity.data import StudyTexts
from repsurgery.studies.toxicity.generators import GeneratorContext
from repsurgery.studies.toxicity.steered_generator import SteeredGenerator, model_identity
from tests.lm.tiny_models import WORDS, texts, tiny_model, tiny_tokenizer
from tests.studies.toxicity.small import small_spec

PROMPTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w10 w11"]
SEEDS = [0, 1, 2, 7]
TARGET = WORDS[30:]


def tiny_context(*, work=Path("work"), model=None, tokenizer=None, **differences):
    model, tokenizer = model or tiny_model("llama"), tokenizer or tiny_tokenizer()
    spec = small_spec(Path(), **{"configurations": ["mean all"], "temperature": 0.7, **differences})
    fitted = {label: texts(25, seed=i) for i, label in enumerate((spec.source, spec.target))}
    sampling = {"top_p": spec.top_p, "temperature": spec.temperature, "tokens": spec.tokens}
    identity = {**model_identity(model, tokenizer), **sampling}
    return GeneratorContext(model, tokenizer, spec, StudyTexts(None, fitted, {}, None, None), work, identity)


def taught_context(family="llama", *, work, **differences):
    """Return a context whose texts of the source have the words w0 to w9, and those of the target `TARGET`."""
    made = tiny_context(**{"model": tiny_model(family), "work": work, **differences})
    rng = np.random.default_rng(0)
    for label, words in ((made.spec.source, WORDS[:10]), (made.spec.target, TARGET)):
        made.texts.fitted[label] = [" ".join(rng.choice(words, size=12)) for _ in range(40)]
    return made


def share_of_target(generator):
    """Return which share of the words in 40 continuations of each prompt is in `TARGET`."""
    words = [word for row in generator.generate(PROMPTS, range(40)) for c in row for word in c.text.split()]
    return sum(word in TARGET for word in words) / len(words)


def rival(line, context):
    return parse_line(line).make(context)


def part_digests(line, context):
    """Return what decides each part of a line, by name."""
    one = rival(line, context)
    return {name: one.part_identity(name) for name in one.parts()}


def base(context):
    return SteeredGenerator("base", context, None)


def rows(generator, prompts=PROMPTS, seeds=SEEDS):
    return [[c.tokens for c in row] for row in generator.generate(prompts, seeds)]
