"""A compiled graph calls no hook: while a model is steered its Python code runs instead."""

import shutil
import threading

import pytest
import torch

from repsurgery import lm
from repsurgery.errors import SteeringError
from tests.lm.tiny_models import tiny_model
from tests.lm.tools import DEPTH, assert_close, gated, prompts, random_map, run, split_gate

FAMILIES = ["llama", "gpt2", "gemma2"]
SETTINGS = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}


def by_function(model):
    return torch.compile(model, backend="eager")


def in_place(model):
    model.compile(backend="eager")
    return model


def its_forward(model):
    model.forward = torch.compile(model.forward, backend="eager")
    return model


def its_layers(model):
    for name, module in model.named_modules():
        if name.endswith((".0", ".1")):
            module.compile(backend="eager")
    return model


def logits(model):
    ids, mask = prompts("right")
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=mask).logits


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("compiled", [by_function, in_place, its_forward, its_layers])
@pytest.mark.parametrize("first", ["before the block", "inside the block"])
def test_a_compiled_model_is_steered_like_an_eager_one(family, compiled, first):
    torch.compiler.reset()
    eager = tiny_model(family)
    steering = {"layers.0": gated(random_map(), split_gate(eager, "layers.0", *prompts("right")))}
    bare = logits(eager)
    with lm.steer(eager, steering):
        expected = logits(eager)
    assert (expected - bare).abs().max() > 1e3 * DEPTH
    model = compiled(tiny_model(family))
    if first == "before the block":
        assert_close(logits(model), bare, rtol=DEPTH)
    with lm.steer(model, steering) as steered:
        assert_close(logits(steered), expected, rtol=DEPTH)
        assert_close(logits(model), expected, rtol=DEPTH)
    assert steered.visits == {"layers.0": 2}
    # no graph keeps what the block did
    assert_close(logits(model), bare, rtol=DEPTH)


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor compiles C++")
def test_inductor_s_graphs_are_steered_too(model):
    torch.compiler.reset()
    compiled = torch.compile(model)
    bare = logits(compiled)
    with lm.steer(model, {"final": random_map()}):
        expected = logits(model)
    with lm.steer(compiled, {"final": random_map()}):
        assert_close(logits(compiled), expected, rtol=DEPTH)
    assert_close(logits(compiled), bare, rtol=DEPTH)


@pytest.mark.parametrize("positions", ["all", "generated"])
def test_generation_with_a_static_cache_and_a_compiled_forward(positions):
    torch.compiler.reset()
    model = tiny_model("llama")
    ids, mask = prompts()
    steering = {"layers.0": random_map(size=0.6)}
    with lm.steer(model, steering, positions=positions):
        expected = model.generate(ids, attention_mask=mask, **SETTINGS)
    model.forward = torch.compile(model.forward, backend="eager")
    bare = model.generate(ids, attention_mask=mask, cache_implementation="static", **SETTINGS)
    with lm.steer(model, steering, positions=positions):
        found = model.generate(ids, attention_mask=mask, cache_implementation="static", **SETTINGS)
    assert torch.equal(found, expected) and not torch.equal(found, bare)


def test_the_stance_returns_with_the_last_thread(model):
    def stance():
        return torch._dynamo.eval_frame._stance.stance

    entered, leave = threading.Event(), threading.Event()

    def other():
        with lm.steer(model, {"final": random_map()}):
            run(model, *prompts())
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with torch.compiler.set_stance("eager_on_recompile"):
        with lm.steer(model, {"final": random_map()}):
            thread.start()
            entered.wait()
            run(model, *prompts())
        assert stance() == "force_eager"
        leave.set()
        thread.join()
        assert stance() == "eager_on_recompile"


def test_an_exported_graph_is_not_steered_and_says_so(model):
    h = torch.ones(1, 2, 16)
    norm = torch.export.export(model.model.norm, (h,)).module()
    with pytest.raises(SteeringError, match=r"torch\.export"), lm.steer(model, {"final": random_map()}):
        norm(h)
