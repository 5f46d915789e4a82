"""Resident memory of the server on SmolLM2 over 500 different requests, and 25 streams with a steering each.

    python -m benchmarks.serving_memory --output benchmarks/results/serving_memory.json

A run takes a few minutes. No two requests have the same steering and strength.
"""

import argparse
import json
import sys
import tempfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import repsurgery as rs
from benchmarks import machine, smollm2
from benchmarks.lines import Line, at_least, at_most, fact, show
from benchmarks.serving import ANSWER_SECONDS, _process
from repsurgery.datasets import load_prompts

STREAMS = 25
MARKS = (100, 300, 500)
NEW_TOKENS = 4
SHIFT = 3.0
"""The size of each entry of a random shift, large enough that texts differ."""
GROWTH = 16.0
"""MiB that 200 requests may add; a kept answer, plan or batch of each would be much more."""


def run(marks: tuple[int, ...]) -> list[Line]:
    """Return the resident memory after each number of requests in ``marks``, and what became of the streams."""
    prompts = load_prompts()
    with tempfile.TemporaryDirectory() as folder:
        _steering_files(Path(folder))
        words = ["--model", "smollm2-135m", "--steerings-dir", folder, "--max-batch", str(STREAMS)]
        with _process([sys.executable, "-m", "repsurgery", "serve", *words]) as url:
            child = psutil.Process().children()[-1]
            bodies = [_body(prompts[i % len(prompts)], i % STREAMS, 0.5 + i / 1000) for i in range(max(marks))]
            resident, sent = [], 0
            for mark in marks:
                _all(url, bodies[sent:mark], STREAMS)
                sent = mark
                resident.append(child.memory_info().rss / 2**20)
            own = [_body("You are such a", i, 1.0) | {"stream": True} for i in range(STREAMS)]
            alone, together = _all(url, own, 1), _all(url, own, STREAMS)
            last = child.memory_info().rss / 2**20
    growth = resident[-1] - resident[-2]
    same = sum(a == b for a, b in zip(alone, together, strict=True))
    return [
        *(fact(f"resident after {n} requests", value, "MiB") for n, value in zip(marks, resident, strict=True)),
        at_most(f"growth from {marks[-2]} to {marks[-1]} requests", growth, GROWTH, "MiB"),
        at_least(f"of {STREAMS} streams at once, those with the text they have alone", same, STREAMS, ""),
        fact("different texts among them", len(set(together))),
        fact("resident after the streams", last, "MiB"),
    ]


def _steering_files(folder: Path) -> None:
    rng = np.random.default_rng(0)
    width = smollm2.loaded()[0].config.hidden_size
    for i in range(STREAMS):
        shift = rs.SteeringFunction({None: rs.Translation(SHIFT * rng.normal(size=width))})
        rs.save(shift.with_origin(site=f"layers.{smollm2.LAYER}"), folder / f"s{i}.safetensors")


def _body(prompt: str, steering: int, strength: float) -> dict[str, Any]:
    chosen = {"name": f"s{steering}", "strength": strength}
    return {"prompt": prompt, "max_tokens": NEW_TOKENS, "temperature": 0, "steering": chosen}


def _all(url: str, bodies: list[dict[str, Any]], many: int) -> list[str]:
    """Send every request, ``many`` at a time, and return the texts; one that fails raises an error."""

    def one(body: dict[str, Any]) -> str:
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            if not body.get("stream"):
                return str(json.load(answer)["choices"][0]["text"])
            *events, done = [line[6:].strip() for line in answer if line.startswith(b"data: ")]
        choices = [json.loads(event)["choices"][0] for event in events]
        if done != b"[DONE]" or choices[-1]["finish_reason"] is None:
            raise RuntimeError("a stream was lost")
        return "".join(choice["text"] for choice in choices)

    with ThreadPoolExecutor(many) as pool:
        return list(pool.map(one, bodies))


def main() -> None:
    """Parse the options, run, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few requests: shows that the script runs, judges nothing")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    lines = run((4, 8, 12) if options.quick else MARKS)
    show("serving_memory", lines, judged=not options.quick)
    if options.output:
        record = {"machine": machine.facts(), "scripts": {"serving_memory": [line.as_dict() for line in lines]}}
        options.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
