"""Parts are made once, resumed where they stopped, and never half-written."""

import itertools

import numpy as np
import pytest
import torch

from repsurgery.errors import ModelError, NonFiniteError
from repsurgery.studies.toxicity.decoding import training
from repsurgery.studies.toxicity.decoding.parts import Part, Workshop, known_part, make_part
from repsurgery.studies.toxicity.decoding.training import train


def test_a_part_is_made_once(tmp_path):
    calls = []

    def make(workshop):
        calls.append(workshop)
        return {"fact": 1}, {"x": np.arange(3.0)}

    part = Part("store", make)
    assert known_part(tmp_path, {"a": 1}) is None
    first = make_part(tmp_path, part, {"a": 1}, progress=False)
    again = make_part(tmp_path, part, {"a": 1}, progress=False)
    assert len(calls) == 1 and first.header["bytes"] == 24 and first.header["name"] == "store"
    assert np.array_equal(again.arrays["x"], np.arange(3.0)) and again.header == first.header
    make_part(tmp_path, part, {"a": 2}, progress=False)
    assert len(calls) == 2


def test_an_interrupted_part_is_not_half_written(tmp_path):
    def make(workshop):
        workshop.state.write_bytes(b"unfinished")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_part(tmp_path, Part("store", make), {"a": 1}, progress=False)
    assert known_part(tmp_path, {"a": 1}) is None
    assert [path.suffix for path in tmp_path.iterdir()] == [".unfinished"]
    make_part(tmp_path, Part("store", lambda workshop: ({}, {"x": np.ones(1)})), {"a": 1}, progress=False)
    assert [path.suffix for path in tmp_path.iterdir()] == [".safetensors"]


@pytest.mark.parametrize(
    "error", [MemoryError("Unable to allocate"), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")]
)
def test_exhausted_memory_is_one_line_and_nothing_is_stored(error, tmp_path):
    def make(workshop):
        raise error

    with pytest.raises(ModelError, match=r"Memory ran out while 'store' was made\. .*run the same command again\.$"):
        make_part(tmp_path, Part("store", make), {"a": 1}, progress=False)
    assert not list(tmp_path.iterdir())


def test_other_errors_of_a_part_are_shown_as_they_are(tmp_path):
    def make(workshop):
        raise RuntimeError("The size of tensor a (8) must match")

    with pytest.raises(RuntimeError, match="size of tensor"):
        make_part(tmp_path, Part("store", make), {"a": 1}, progress=False)


def problem():
    torch.manual_seed(0)
    X, y = torch.randn(40, 5), torch.randn(40)
    weight = torch.nn.Parameter(torch.zeros(5))

    def loss_of(step):
        rows = slice(4 * (step % 10), 4 * (step % 10) + 4)
        return (X[rows] @ weight - y[rows]).square().mean()

    return weight, loss_of


def run(loss_of, weight, state, steps=30):
    workshop = Workshop(state, progress=False)
    loss = train({"w": weight}, loss_of, steps=steps, learning_rate=0.1, workshop=workshop, label="a line")
    return loss, workshop


def ticking(monkeypatch, step):
    """Let every look at the clock of the processor find that ``step`` seconds have passed."""
    ticks = itertools.count()
    monkeypatch.setattr(training.time, "process_time", lambda: step * next(ticks))


def test_a_resumed_training_gives_the_same_parameters(tmp_path, monkeypatch):
    ticking(monkeypatch, 1.0)
    whole, loss_of = problem()
    loss, _ = run(loss_of, whole, tmp_path / "whole")
    weight, loss_of = problem()
    seen = []

    def interrupted(step):
        seen.append(step)
        if step == 12 and len(seen) == 13:
            raise KeyboardInterrupt
        return loss_of(step)

    with pytest.raises(KeyboardInterrupt):
        run(interrupted, weight, tmp_path / "state")
    weight.data.fill_(7.0)  # a new process starts from other values
    resumed_loss, workshop = run(interrupted, weight, tmp_path / "state")
    assert seen == [*range(13), *range(12, 30)]
    assert torch.equal(weight, whole) and resumed_loss == loss
    assert workshop.seconds == 1.0  # from the start of the interrupted attempt to its end
    assert not torch.equal(whole, torch.zeros(5))


def test_the_rate_rises_and_falls_and_gradients_are_clipped(tmp_path):
    weight, seen = torch.nn.Parameter(torch.zeros(1)), []

    def loss_of(step):
        seen.append(weight.item())
        return (1000.0 if step % 2 else 1.0) * weight.sum()

    workshop = Workshop(tmp_path / "state", progress=False)
    train({"w": weight}, loss_of, steps=100, learning_rate=1e-3, workshop=workshop, label="a line")
    # gradients of norm 1 and 1000 are both of norm 1 after clipping, so that Adam moves by the rate of each step
    moved = -np.diff([*seen, weight.item()]) / 1e-3
    warm = [0.1 + step / 6 for step in range(6)]
    expected = [*warm, *((100 - step) / 94 for step in range(6, 100))]
    # weight decay adds 1 % of a weight below 0.05
    np.testing.assert_allclose(moved, expected, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("step", [2.0**-20, 0.25, 1000.0])
def test_the_time_of_a_part_is_kept_however_quick_the_machine(tmp_path, monkeypatch, step):
    ticking(monkeypatch, step)
    part = Part("store", lambda workshop: ({}, {"x": np.ones(1)}))
    assert make_part(tmp_path, part, {"a": 1}, progress=False).header["seconds"] == step


def test_the_seconds_of_interrupted_attempts_count(tmp_path):
    def make(workshop):
        workshop.seconds += 1000.0
        return {}, {"x": np.ones(1)}

    assert make_part(tmp_path, Part("store", make), {"a": 1}, progress=False).header["seconds"] >= 1000


def test_a_training_saves_itself_while_it_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "SAVE_SECONDS", -1.0)
    weight, loss_of = problem()

    def killed(step):
        if step == 7:
            raise RuntimeError("the process was killed")
        return loss_of(step)

    with pytest.raises(RuntimeError, match="killed"):
        run(killed, weight, tmp_path / "state")
    seen = []
    run(lambda step: (seen.append(step), loss_of(step))[1], weight, tmp_path / "state")
    assert seen[0] == 7


def test_training_without_memory_says_what_to_do(tmp_path):
    weight, _ = problem()

    def full(step):
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    with pytest.raises(ModelError, match=r"Memory ran out in step 0 of the training of 'a line'.*run the same command"):
        run(full, weight, tmp_path / "state")


def test_a_loss_that_is_not_a_number_is_refused(tmp_path):
    weight, _ = problem()
    with pytest.raises(NonFiniteError, match="loss of 'a line' is nan"):
        run(lambda step: weight.sum() * torch.nan, weight, tmp_path / "state")
