"""A batch of 16 rows with different steerings, strengths and none on SmolLM2, beside the same batch unsteered."""

from typing import Any

import torch

import repsurgery as rs
from benchmarks import smollm2
from benchmarks.clock import interleaved
from benchmarks.lines import Line, Settings, at_least, fact
from repsurgery import lm
from repsurgery.lm.generate.row_decoder import RowDecoder
from repsurgery.lm.steer.rows import prepare_row

BATCH = 16
STEPS = 12


def run(settings: Settings) -> list[Line]:
    """Measure CPU seconds in shuffled rounds; throughput is the median of paired ratios."""
    model, tokenizer = smollm2.loaded()
    fitted = smollm2.fitted(settings.quick)
    middle = f"layers.{smollm2.LAYER}"
    shift = rs.SteeringFunction({None: fitted["middle"]}).with_origin(site=middle)
    size = fitted["middle"].shift
    project = rs.LowRank(-size[:, None] / (size @ size), size[None], size)
    low_rank = rs.SteeringFunction({None: project}).with_origin(site=middle)
    gated = fitted["final"].with_origin(site="final")
    kinds = {
        "unsteered": [None],
        "unsteered again": [None],
        "one shift": [shift],
        "shifts of 16 strengths": [lm.Choice(shift, i / BATCH) for i in range(BATCH)],
        "mixed": [
            *(None, lm.Choice(shift, 1.0), lm.Choice(low_rank, 1.0), lm.Choice(shift, 0.3)),
            *(lm.Choice(shift, 0.7, "generated"), None, lm.Choice(gated, 1.0), lm.Choice(low_rank, 0.5)),
        ],
    }
    prompts = smollm2.prompt_tokens(BATCH)["input_ids"].tolist()
    steps = 3 if settings.quick else STEPS

    def decoded(choices: list[Any]) -> torch.Tensor:
        plans = [prepare_row(model, choices[i % len(choices)]) for i in range(BATCH)]
        with torch.inference_mode(), RowDecoder(model, tokenizer) as decoder:
            tokens = [decoder.join(prompts, plans).argmax(-1)]
            for _ in range(steps):
                tokens.append(decoder.step(tokens[-1].tolist()).argmax(-1))
        return torch.stack(tokens, 1)

    candidates = {name: lambda choices=choices: decoded(choices) for name, choices in kinds.items()}
    rounds = settings.repeats or (2 if settings.quick else 7)
    t = interleaved(candidates, rounds=rounds, shuffled=True)
    base = t.results["unsteered"]
    lines = [fact("batch of 16: unsteered, a step", t.of("unsteered") / (steps + 1) * 1e3, "ms", f"{rounds} rounds")]
    for name in list(kinds)[1:]:
        throughput = t.paired("unsteered", name)
        changed = int((t.results[name] != base).any(dim=1).sum())
        note = f"{t.spread('unsteered', name)}; {changed} of {BATCH} texts differ from unsteered"
        what = f"batch of 16: {name}, throughput / unsteered"
        lines.append(
            at_least(what, throughput, 0.9, note=note) if name == "mixed" else fact(what, throughput, "x", note)
        )
    return lines
