"""An exported control vector in the real llama.cpp, beside the hook: ``python -m benchmarks.llama_cpp``.

A shift from rude to courteous texts at one block of SmolLM2 is exported by the command line (``repsurgery export --to
gguf``), and llama.cpp's server answers with and without it. For each prompt, the change of the log-probabilities of all
tokens of the vocabulary is compared with the change that hooks make here, at the block of the export and at its
neighbours, which must agree less. The record is ``benchmarks/results/llama_cpp.json``.

Arithmetic: the file in the wheel has Q4_1 weights. llama.cpp multiplies them with activations that it rounds to 8 bits
(Q8_1), and keeps keys and values in float16; here the same weights are dequantised to float32. A second run gives
llama.cpp those float32 weights with keys and values in float32, so that only the order of float32 operations differs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import repsurgery as rs
from benchmarks import machine
from benchmarks.llama_cpp_server import LlamaCpp
from repsurgery import datasets, lm
from repsurgery.lm.load.folder import cache_root
from repsurgery.lm.load.parts import intact_files
from repsurgery.lm.load.wheel import EMBEDDED

MODEL, BLOCK, STRENGTH = "smollm2-135m", 14, 0.8
NEIGHBOURS = (BLOCK - 2, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 2)
PROMPTS = 12
RECORD = Path(__file__).parent / "results" / "llama_cpp.json"
ARITHMETIC: dict[str, tuple[object, ...]] = {
    "Q4_1 weights, Q8_1 activations, float16 cache": (),
    "float32 weights, activations and cache": ("-fa", "off", "-ctk", "f32", "-ctv", "f32"),
}

Rows = NDArray[np.float64]


def main() -> None:
    """Run the comparison, print it and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=cache_root() / "llama-cpp", help="where llama.cpp is unpacked")
    llama = LlamaCpp(parser.parse_args().cache.absolute())
    torch.set_num_threads(1)
    model, tokenizer = lm.load(MODEL)
    prompts = [tokenizer(text)["input_ids"] for text in datasets.load_prompts()[:PROMPTS]]
    steering = _fitted(model, tokenizer)
    base = _here(model, prompts)
    changes = {}
    for block in NEIGHBOURS:
        with lm.steer(model, {f"layers.{block}": steering.map_}, strength=STRENGTH):
            changes[block] = _here(model, prompts) - base
    with tempfile.TemporaryDirectory() as scratch:
        vector = _exported(steering, Path(scratch))
        rows = {}
        (quantised,) = intact_files(EMBEDDED[MODEL].parts, subject=MODEL)
        for arithmetic, options in ARITHMETIC.items():
            file = llama.dequantised(quantised, llama.root.parent / f"{MODEL}.gguf") if options else quantised
            plain = _there(llama, file, prompts, len(base[0]), *options)
            steered = _there(llama, file, prompts, len(base[0]), *options, "--control-vector", vector)
            rows[arithmetic] = _compared(base, changes, plain, steered)
    record = {
        "machine": machine.facts(),
        "llama.cpp": llama.version(),
        "model": MODEL,
        "site": f"layers.{BLOCK}",
        "strength": STRENGTH,
        "prompts": len(prompts),
        "here": "the Q4_1 weights, dequantised to float32, in transformers on one thread",
        "arithmetic of llama.cpp": rows,
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(rows, indent=1) + "\n")


def _fitted(model: Any, tokenizer: Any) -> rs.MeanMatching:
    corpus, site = datasets.load_courtesy(), f"layers.{BLOCK}"
    moments = lm.class_moments(model, tokenizer, corpus.texts, corpus.labels, sites=[site], progress=False)
    return rs.MeanMatching.from_moments(moments[site], source="rude", target="courteous", gate="always")


def _exported(steering: rs.MeanMatching, folder: Path) -> Path:
    file, out = folder / "kinder.safetensors", folder / "kinder.gguf"
    rs.save(steering, file)
    words = ("export", file, "--to", "gguf", "--out", out, "--site", f"layers.{BLOCK}", "--strength", STRENGTH)
    command = [sys.executable, "-m", "repsurgery", *map(str, words), "--model", MODEL]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return out


def _here(model: Any, prompts: list[list[int]]) -> Rows:
    """Return the log-probabilities (prompts, vocabulary) of the next token, in transformers."""
    with torch.no_grad():
        last = [model(torch.tensor([tokens])).logits[0, -1].double() for tokens in prompts]
    rows: Rows = torch.log_softmax(torch.stack(last), dim=1).numpy()
    return rows


def _there(llama: LlamaCpp, file: Path, prompts: list[list[int]], vocabulary: int, *options: object) -> Rows:
    """Return the same, in llama.cpp."""
    with llama.serving(file, *options) as server:
        return np.stack([server.log_probabilities(tokens, vocabulary) for tokens in prompts])


def _compared(base: Rows, changes: dict[int, Rows], plain: Rows, steered: Rows) -> dict[str, Any]:
    change = steered - plain
    own = changes[BLOCK]
    correlations = {
        f"layers.{block}": [float(np.corrcoef(a, b)[0, 1]) for a, b in zip(change, hook, strict=True)]
        for block, hook in changes.items()
    }
    return {
        "correlation of the change with that of the hook at": {
            site: {"mean": float(np.mean(values)), "least": min(values), "greatest": max(values)}
            for site, values in correlations.items()
        },
        "rms change by the hook, nats": _rms(own),
        "rms difference of the changes, nats": _rms(change - own),
        "rms difference without steering, nats": _rms(plain - base),
        "largest difference of the changes, nats": float(np.abs(change - own).max()),
    }


def _rms(values: Rows) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


if __name__ == "__main__":
    main()
