"""The share of `lm.generate`'s samples on SmolLM2 that do not depend on their batch."""

from benchmarks import smollm2
from benchmarks.lines import Line, Settings, fact
from repsurgery import lm
from repsurgery.datasets import load_prompts

PROMPTS, SAMPLES = 8, 5
SIZES = (1, 7, 40)


def run(settings: Settings) -> list[Line]:
    """Compare token by token the samples of several batch sizes with those drawn one by one."""
    model, tokenizer = smollm2.loaded()
    prompts = load_prompts()[: 2 if settings.quick else PROMPTS]
    drawn = {}
    for size in SIZES:
        records = lm.generate(model, tokenizer, prompts, n=SAMPLES, batch_size=size, progress=False)
        drawn[size] = [record.tokens for record in records]
    alone = drawn[SIZES[0]]
    lines = []
    for size in SIZES[1:]:
        same = sum(a == b for a, b in zip(alone, drawn[size], strict=True))
        note = f"{same} of {len(alone)}, 20 tokens each, left-padded prompts of different lengths"
        lines.append(fact(f"identical samples, batch {size} and batch 1", 100 * same / len(alone), "%", note))
    return lines
