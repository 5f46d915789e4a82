"""Steering files, and a tiny served model that the tests of requests share."""

import time

import pytest
import torch

import repsurgery as rs
from repsurgery.serve import engine as engine_module
from repsurgery.serve.sources import Sources
from tests.lm.tiny_models import tiny_model
from tests.serve.running import chat_tokenizer, running, steering


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Return a folder with three steerings, of which one states its own strength and positions."""
    folder = tmp_path_factory.mktemp("steerings")
    rs.save(steering(1), folder / "first.safetensors")
    rs.save(steering(2, site="final"), folder / "second.safetensors")
    rs.save(steering(3, strength=0.5, positions="generated"), folder / "third.safetensors")
    return folder


@pytest.fixture(scope="module")
def served(folder):
    """Return a running server of a tiny Llama."""
    with running(tiny_model("llama"), chat_tokenizer(), sources=Sources(folder=folder), max_new_tokens=40) as server:
        yield server


def endless(context=4096):
    """Return a model that never ends its text itself, and a tokenizer with a long context."""
    model, tokenizer = tiny_model("llama", max_position_embeddings=context), chat_tokenizer()
    model.generation_config.eos_token_id = 10**6
    tokenizer.model_max_length = context
    return model, tokenizer


@pytest.fixture(scope="module")
def slow(folder):
    """Return a server whose answers may take thousands of steps."""
    # nothing but its client ends a request early, not even events that nobody reads
    limits = {"max_batch": 4, "max_queue": 4, "max_new_tokens": 4000, "max_unread": 100_000}
    with running(*endless(), sources=Sources(folder=folder), **limits) as server:
        yield server


@pytest.fixture
def unhurried(monkeypatch):
    """Let every step of a server in this process take at least a millisecond, so that no machine is too quick."""
    draw = engine_module.next_tokens

    def draw_unhurried(rows, logits):
        time.sleep(0.001)
        return draw(rows, logits)

    monkeypatch.setattr(engine_module, "next_tokens", draw_unhurried)
