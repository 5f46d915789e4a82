"""A block says what it did: how often each site was passed, what share was steered, and that nothing was in the way."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import SiteError, SteeringError, SteeringWarning
from tests.lm.tiny_models import WIDTH, texts, tiny_tokenizer
from tests.lm.tools import gated, prompts, random_map, run, split_gate, states

ONES = rs.Translation(np.ones(WIDTH))
SETTINGS = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}


@pytest.mark.parametrize("strength", [1.0, 0.0])
def test_visits_are_counted_by_site_and_block(model, strength):
    ids, mask = prompts()
    with lm.steer(model, {"layers.0": ONES, "final": ONES}, strength=strength) as outer:
        assert outer.visits == {"layers.0": 0, "final": 0}
        run(model, ids, mask)
        with lm.steer(model, {"final": ONES}, strength=strength) as inner:
            model.generate(ids, attention_mask=mask, **SETTINGS)
    assert outer.visits == {"layers.0": 6, "final": 6}
    assert inner.visits == {"final": 5}
    assert not hasattr(model, "visits")


@pytest.mark.parametrize("positions", ["all", "last"])
def test_the_steered_share_is_the_gate_s(model, positions):
    ids, mask = prompts()
    gate = split_gate(model, "final", ids, mask)
    H = states(model, "final", ids, mask)
    asked = H[mask.bool()] if positions == "all" else H[:, -1]
    with lm.steer(model, {"final": gated(random_map(), gate)}, positions=positions) as steered:
        run(model, ids, mask)
    expected = float(np.mean(gate.codes(asked.numpy().astype(float)) == 1))
    assert steered.steered_share == {"final": pytest.approx(expected)}
    assert positions == "last" or 0 < expected < 1
    with lm.steer(model, {"final": ONES}) as whole:
        assert whole.steered_share == {"final": 0.0}
        run(model, ids, mask)
    assert whole.steered_share == {"final": 1.0}


def test_a_block_in_which_nothing_ran_is_an_error(model):
    with pytest.raises(SteeringError, match=r"'layers\.1'.*threads='all'"), lm.steer(model, {"layers.1": ONES}):
        pass
    # of two sites, the one that ran does not excuse the other
    model.idle = nn.Linear(WIDTH, WIDTH)
    with (
        pytest.raises(SteeringError, match="went through 'idle' inside"),
        lm.steer(model, {"final": ONES, "idle": ONES}),
    ):
        run(model, *prompts())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_a_block_that_failed_first_warns_and_keeps_its_error(model):
    with pytest.warns(SteeringWarning, match="No pass"), pytest.raises(KeyError, match="mine"):  # noqa: SIM117
        with lm.steer(model, {"final": ONES}):
            raise KeyError("mine")


@pytest.mark.parametrize("whose", ["site", "watch"])
def test_a_hook_that_somebody_removed_is_an_error(model, whose):
    with pytest.raises(SteeringError, match="was removed by other code"), lm.steer(model, {"final": ONES}):
        run(model, *prompts())
        (model.model.norm._forward_hooks if whose == "site" else model._forward_pre_hooks).clear()
        run(model, *prompts())


def test_reading_a_site_that_never_runs_is_refused(model):
    model.idle = nn.Linear(WIDTH, WIDTH)
    with pytest.raises(SiteError, match=r"'idle'.*did not run"):
        lm.extract(model, tiny_tokenizer(), texts(2), site="idle", progress=False)
    with pytest.raises(SiteError, match=r"'idle'.*did not run"):
        lm.class_moments(model, tiny_tokenizer(), texts(4), [0, 0, 1, 1], sites=["final", "idle"], progress=False)


def test_what_a_block_yields_behaves_as_the_model(model):
    ids, mask = prompts()
    bare = run(model, ids, mask)
    with lm.steer(model, {"final": ONES}) as steered:
        assert isinstance(steered, type(model)) and isinstance(steered, nn.Module)
        assert steered == model and hash(steered) == hash(model) and repr(steered) == repr(model)
        assert steered.config is model.config and steered.device == model.device
        assert set(dir(model)) < set(dir(steered))
        assert torch.equal(run(steered, ids, mask), run(model, ids, mask))
        assert steered.generate(ids, attention_mask=mask, **SETTINGS).shape == (3, 11)
        assert not torch.equal(run(steered, ids, mask), bare)
        steered.note = "mine"
        with lm.steer(steered, {"layers.0": ONES}) as inner:
            run(inner, ids, mask)
        assert (inner.visits, steered.visits["final"]) == ({"layers.0": 1}, 9)
    assert vars(model).pop("note") == "mine"
    twin = copy.deepcopy(steered)
    assert type(twin) is type(model) and torch.equal(run(twin, ids, mask), bare)


def test_a_generate_patched_inside_the_block_stays(model):
    ids, mask = prompts()

    def patched(*args, **kwargs):
        return "mine"

    with lm.steer(model, {"final": ONES}):
        run(model, ids, mask)
        model.generate = patched
        with lm.steer(model, {"final": ONES}):
            run(model, ids, mask)
            assert model.generate() == "mine"
        assert model.generate() == "mine"
    assert model.generate is patched


def test_an_error_inside_a_pass_leaves_no_stale_pass(model):
    ids, mask = prompts("right")

    def fail(module, args):
        raise RuntimeError("mine")

    h = torch.randn(3, 6, WIDTH)
    with torch.no_grad(), lm.steer(model, {"final": ONES}):
        whole = model.model.norm(h)
        handle = model.model.layers[1].register_forward_pre_hook(fail)
        with pytest.raises(RuntimeError, match="mine"):
            run(model, ids, mask)
        handle.remove()
        # a stale pass would keep the padding of the one that failed
        assert torch.equal(model.model.norm(h), whole)


def test_ctrl_c_inside_a_pass_is_forgotten_by_the_next(model):
    ids, mask = prompts("right")

    def interrupt(module, args):
        raise KeyboardInterrupt

    h = torch.randn(3, 6, WIDTH)
    with torch.no_grad(), lm.steer(model, {"final": ONES}):
        whole = model.model.norm(h)
        for call in (lambda: run(model, ids, mask), lambda: model.generate(ids, attention_mask=mask, **SETTINGS)):
            handle = model.model.layers[1].register_forward_pre_hook(interrupt)
            with pytest.raises(KeyboardInterrupt):
                call()
            handle.remove()
            # neither the next pass of a part of the model nor a module on its own sees the pass that died
            part = model.model(input_ids=ids).last_hidden_state
            assert torch.equal(model.model.norm(h), whole)
            run(model, ids, mask)
            assert torch.equal(model.model(input_ids=ids).last_hidden_state, part)


def test_results_on_file_need_no_pass(model, tmp_path):
    arguments = (model, tiny_tokenizer(), texts(4))
    bare = lm.extract(*arguments, work_dir=tmp_path, progress=False)
    found = []
    for _ in range(2):
        with lm.steer(model, {"layers.0": ONES}) as steered:
            found.append(lm.extract(steered, *arguments[1:], work_dir=tmp_path, progress=False))
    assert np.array_equal(*found) and not np.array_equal(found[0], bare)
    assert steered.visits == {"layers.0": 0}


def test_a_copy_made_inside_the_block_generates_by_itself(model):
    ids, mask = prompts()
    with lm.steer(model, {"final": ONES}):
        run(model, ids, mask)
        twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.lm_head.weight.copy_(-model.lm_head.weight)
    found, own = (m.generate(ids, attention_mask=mask, **SETTINGS) for m in (twin, model))
    assert not torch.equal(found, own)
    assert torch.equal(found, type(twin).generate(twin, ids, attention_mask=mask, **SETTINGS))
