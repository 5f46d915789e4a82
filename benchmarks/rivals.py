"""What a new token costs under each rival of steering, on SmolLM2 at a batch of five, beside the base in each round.

Adapters and guide are trained on a few hundred tokens only, which changes what is written but not what it costs.
"""

import tempfile
from pathlib import Path

from benchmarks import smollm2
from benchmarks.lines import Line, Settings, at_most, fact
from repsurgery.lm.twins import Twin
from repsurgery.studies.toxicity.cost import measured_cost
from repsurgery.studies.toxicity.data import load_texts
from repsurgery.studies.toxicity.generators import parse_generator_line
from repsurgery.studies.toxicity.spec import make_toxicity_spec
from repsurgery.studies.toxicity.steered_generator import SteeredGenerator
from repsurgery.studies.toxicity.study import Study

PROTOTYPES = {
    "dexperts tokens=512": 2.6,
    "gedi tokens=512": 2.9,
    "goodtriever": 1.4,
    "uddia threshold=1e9": 4.3,
    "pplm": 33.0,
}
"""Cost in units of the base's of straightforward prototypes; UDDIA's is that of one try."""
SLACK = 1.3
OTHERS = (
    "dapt tokens=512",
    "linear-act texts=8",
    "aura texts=16",
    "destein",
    "repeng texts=16",
    "self-debias",
    "instruction",
)


def run(settings: Settings) -> list[Line]:
    """Measure each rival's CPU seconds per token, divided by the base's in the same round."""
    tokens = 3 if settings.quick else 20
    names = {"data": "courtesy", "prompts": "courtesy", "source": "rude", "target": "courteous"}
    sizes = {"fit_rows": 100, "held_out": 50, "prompt_count": 1, "prompt_toxicity": 0.0, "tokens": tokens}
    spec = make_toxicity_spec("local", configurations=(), scorers=("linear",), **names, **sizes)
    rounds = settings.repeats or (1 if settings.quick else 5)
    with tempfile.TemporaryDirectory() as folder:
        study = Study(spec, load_texts(spec, None), [Twin(*smollm2.loaded())], {}, {}, Path(folder), progress=False)
        context = study.context(study.pair[0])
        prompt = study.texts.prompts.texts[0]

        def cost(line: str) -> float:
            rival = parse_generator_line(line).make(context)
            base = SteeredGenerator("base", context, None)
            return measured_cost(rival, lambda: base, prompt, rounds=rounds, folder=Path(folder))[0]

        judged = [
            at_most(f"{line.split()[0]} / base, a token", cost(line), SLACK * prototype, "x", f"prototype {prototype}x")
            for line, prototype in PROTOTYPES.items()
        ]
        return [*judged, *(fact(f"{line.split()[0]} / base, a token", cost(line), "x") for line in OTHERS)]
