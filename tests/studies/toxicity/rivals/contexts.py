"""What a study gives to a rival, on a tiny model and without files."""

from pathlib import Path

from repsurgery.studies.toxicity.configuration import parse_line
from repsurgery.studies.toxicity.data import StudyTexts
from repsurgery.studies.toxicity.generators import GeneratorContext
from repsurgery.studies.toxicity.steered_generator import SteeredGenerator, model_identity
from tests.lm.tiny_models import texts, tiny_model, tiny_tokenizer
from tests.studies.toxicity.small import small_spec

PROMPTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w10 w11"]
SEEDS = [0, 1, 2, 7]


def tiny_context(*, work=Path("work"), model=None, tokenizer=None, **differences):
    model, tokenizer = model or tiny_model("llama"), tokenizer or tiny_tokenizer()
    spec = small_spec(Path(), **{"configurations": ["mean all"], "temperature": 0.7, **differences})
    fitted = {label: texts(25, seed=i) for i, label in enumerate((spec.source, spec.target))}
    sampling = {"top_p": spec.top_p, "temperature": spec.temperature, "tokens": spec.tokens}
    identity = {**model_identity(model, tokenizer), **sampling}
    return GeneratorContext(model, tokenizer, spec, StudyTexts(None, fitted, {}, None, None), work, identity)


def rival(line, context):
    return parse_line(line).make(context)


def base(context):
    return SteeredGenerator("base", context, None)


def rows(generator, prompts=PROMPTS, seeds=SEEDS):
    return [[c.tokens for c in row] for row in generator.generate(prompts, seeds)]
