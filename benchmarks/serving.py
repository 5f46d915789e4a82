"""Requests per second of the server on SmolLM2, beside sequential `model.generate` and `transformers serve`."""

import json
import os
import random
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch

import repsurgery as rs
from benchmarks import smollm2
from benchmarks.lines import Line, Settings, fact
from repsurgery.datasets import load_prompts
from repsurgery.lm.load.wheel import embedded_folder

REQUESTS = 25
NEW_TOKENS = 8
CONCURRENCY = (1, 8, 25)
MOST_BYTES = 8 << 30
START_SECONDS = 300
ANSWER_SECONDS = 600


def run(settings: Settings) -> list[Line]:
    """Measure wall time in interleaved rounds, because every server is a process of its own, with one thread."""
    requests = 4 if settings.quick else REQUESTS
    prompts = [load_prompts()[i] for i in range(requests)]
    model, tokenizer = smollm2.loaded()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        names = _steering_files(folder, settings)
        ours = stack.enter_context(_process([sys.executable, "-m", "repsurgery", "serve", *_ours(folder)]))
        bodies = [{"prompt": prompt, "max_tokens": NEW_TOKENS, "temperature": 0} for prompt in prompts]
        _ask(ours, bodies[:1], 1)
        steered = [_steered(body, names[i % len(names)]) for i, body in enumerate(bodies)]
        candidates: dict[str, Callable[[], Any]] = {
            "sequential generate": lambda: [_generate(model, tokenizer, prompt) for prompt in prompts]
        }
        for many in CONCURRENCY:
            candidates[f"server, {many} at once"] = lambda many=many: _ask(ours, bodies, many)
        most = CONCURRENCY[-1]
        candidates[f"server, {most} at once, mixed steerings"] = lambda: _ask(ours, steered, most)
        notes = []
        for name, options in (
            ("transformers serve", []),
            ("the same, continuous batching", ["--continuous-batching", "--cb-max-memory-percent", "0.05"]),
        ):
            try:
                peer = stack.enter_context(_process(_transformers(options), path="/v1/completions"))
                _ask(peer, [_named(bodies[0])], 1)
            except (OSError, RuntimeError, KeyError) as error:
                notes.append(fact(f"{name}: did not answer", float("nan"), "", " ".join(str(error).split())[:200]))
                continue
            candidates[f"{name}, {most} at once"] = lambda peer=peer: _ask(
                peer, [_named(body) for body in bodies], most
            )
        seconds, results = _wall(candidates, settings.repeats or (1 if settings.quick else 3))
    return [*_lines(seconds, results, requests), *notes]


def _lines(seconds: dict[str, list[float]], results: dict[str, list[str]], requests: int) -> list[Line]:
    base = seconds["sequential generate"]
    lines = [fact("sequential generate: requests per second", requests / median(base), "requests/s", "wall time")]
    for name, own in seconds.items():
        if name == "sequential generate":
            continue
        ratios = [b / a for a, b in zip(own, base, strict=True)]
        same = sum(a == b for a, b in zip(results[name], results["sequential generate"], strict=True))
        note = f"rounds {min(ratios):.2f}-{max(ratios):.2f}; {same} of {requests} texts as by sequential generate"
        lines.append(fact(f"{name}: requests per second / sequential", median(ratios), "x", note))
    return lines


def _wall(
    candidates: dict[str, Callable[[], list[str]]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[str]]]:
    """Run each candidate once per round in shuffled order; servers run in processes of their own, so by wall time."""
    dice = random.Random(0)
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    results: dict[str, list[str]] = {}
    for _ in range(rounds):
        for name in dice.sample(list(candidates), len(candidates)):
            start = time.perf_counter()
            results[name] = candidates[name]()
            seconds[name].append(time.perf_counter() - start)
    return seconds, results


def _generate(model: Any, tokenizer: Any, prompt: str) -> str:
    inputs = tokenizer(prompt, return_tensors="pt")
    with torch.inference_mode():
        whole = model.generate(**inputs, do_sample=False, max_new_tokens=NEW_TOKENS, pad_token_id=0)
    return str(tokenizer.decode(whole[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))


def _steering_files(folder: Path, settings: Settings) -> list[str]:
    shift = rs.SteeringFunction({None: smollm2.fitted(settings.quick)["middle"]})
    rs.save(shift.with_origin(site=f"layers.{smollm2.LAYER}"), folder / "kinder.safetensors")
    rs.save(smollm2.fitted(settings.quick)["final"].with_origin(site="final"), folder / "gated.safetensors")
    return ["", "kinder", "gated"]


def _steered(body: dict[str, Any], name: str) -> dict[str, Any]:
    return {**body, "steering": {"name": name}} if name else body


def _ours(folder: Path) -> list[str]:
    return ["--model", "smollm2-135m", "--dtype", "float32", "--steerings-dir", str(folder), "--max-batch", "25"]


def _transformers(options: list[str]) -> list[str]:
    command = Path(sys.executable).with_name("transformers")
    return [
        str(command),
        "serve",
        str(embedded_folder("smollm2-135m")),
        "--device",
        "cpu",
        "--dtype",
        "float32",
        *options,
    ]


def _named(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "model": str(embedded_folder("smollm2-135m"))}


@contextmanager
def _process(command: list[str], path: str = "/v1/completions") -> Iterator[str]:
    """Run a server on a free port of this machine with one thread; yield the address of its completions."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    words = [*command, "--host", "127.0.0.1", "--port", str(port)]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    child = subprocess.Popen(words, **silent, env=environment, preexec_fn=_bounded_memory)
    try:
        _await(child, f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port}{path}"
    finally:
        child.terminate()
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()


def _bounded_memory() -> None:
    """Bound the address space: continuous batching of transformers otherwise takes most of the machine's memory."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))


def _await(child: subprocess.Popen, url: str) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if child.poll() is not None:
            raise RuntimeError(f"the server ended with code {child.returncode} before it was ready")
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"the server was not ready within {START_SECONDS} seconds")


def _ask(url: str, bodies: list[dict[str, Any]], many: int) -> list[str]:
    """Send every request, ``many`` at a time, and return the texts."""

    def one(body: dict[str, Any]) -> str:
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            return str(json.load(answer)["choices"][0]["text"])

    with ThreadPoolExecutor(many) as pool:
        return list(pool.map(one, bodies))
