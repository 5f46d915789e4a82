"""One model, many threads: each gets its own steering, and nothing is left on the model."""

import asyncio
import contextlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from repsurgery import lm
from repsurgery.errors import FoldError, ParameterError, SteeringError
from repsurgery.lm.batching.batches import evaluating
from repsurgery.lm.steer.forward_context import steering_in_force
from tests.lm.tiny_models import WIDTH, texts, tiny_model, tiny_tokenizer
from tests.lm.tools import prompts, random_map, run

SETTINGS = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}


def left_alone(model):
    hooks = (getattr(m, name) for m in model.modules() for name in ("_forward_hooks", "_forward_pre_hooks"))
    return not any(hooks) and "generate" not in vars(model) and steering_in_force(model, in_any_thread=True) == []


def steered_logits(model, m, **options):
    with lm.steer(model, {"final": m}, **options):
        return run(model, *prompts())


def test_every_thread_gets_its_own_steering(model):
    maps = [random_map(seed=seed) for seed in range(3)]
    alone = [steered_logits(model, m) for m in maps]
    bare = run(model, *prompts())
    barrier = threading.Barrier(4)

    def steering(m):
        with lm.steer(model, {"final": m}):
            barrier.wait()  # all blocks are open at once
            found = run(model, *prompts())
            barrier.wait()
        return found

    def watching_on():
        barrier.wait()
        found = run(model, *prompts())
        barrier.wait()
        return found

    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(steering, m) for m in maps]
        untouched = pool.submit(watching_on)
        for job, expected in zip(jobs, alone, strict=True):
            assert torch.equal(job.result(), expected)
        assert torch.equal(untouched.result(), bare)
    assert not any(torch.equal(logits, bare) for logits in alone)
    assert left_alone(model)


def test_many_blocks_in_many_threads_leave_every_logit_right(model):
    threads, blocks = 4, 300
    maps = [random_map(seed=seed) for seed in range(threads)]
    expected = [steered_logits(model, m) for m in maps]
    bare = run(model, *prompts())
    assert len({logits.numpy().tobytes() for logits in [*expected, bare]}) == threads + 1

    def work(number):
        wrong = 0
        for i in range(blocks):
            # sites at which hooks come and go: an input, an output, and the one that is compared
            sites = {"embeddings": random_map(size=0.0), "final": maps[number]} if i % 2 else {"final": maps[number]}
            with lm.steer(model, sites) as steered:
                found = run(model, *prompts())
                counts = set(steered.visits.values())
            good = torch.equal(found, expected[number]) if i % 2 == 0 else not torch.equal(found, bare)
            wrong += not good or counts != {1}
        return wrong

    with ThreadPoolExecutor(threads + 1) as pool:
        stop = threading.Event()

        def unsteered():
            wrong = 0
            while not stop.is_set():
                wrong += not torch.equal(run(model, *prompts()), bare)
            return wrong

        other = pool.submit(unsteered)
        jobs = [pool.submit(work, number) for number in range(threads)]
        found = [job.result() for job in jobs]
        stop.set()
        assert (found, other.result()) == ([0] * threads, 0)
    assert left_alone(model)
    assert torch.equal(run(model, *prompts()), bare)


def test_generate_in_a_thread_of_its_own_needs_threads_all(model):
    ids, mask = prompts()
    bare = model.generate(ids, attention_mask=mask, **SETTINGS)
    with lm.steer(model, {"layers.0": random_map(size=0.6)}, positions="generated"):
        expected = model.generate(ids, attention_mask=mask, **SETTINGS)
    found = []

    def start():
        call = {"attention_mask": mask, **SETTINGS}
        thread = threading.Thread(target=lambda: found.append(model.generate(ids, **call)))
        thread.start()
        thread.join()

    with lm.steer(model, {"layers.0": random_map(size=0.6)}, positions="generated", threads="all"):
        start()
    with pytest.raises(SteeringError, match="threads='all'"):  # noqa: SIM117 - the order is the point
        with lm.steer(model, {"layers.0": random_map(size=0.6)}, positions="generated"):
            start()
    assert torch.equal(found[0], expected)
    assert torch.equal(found[1], bare) and not torch.equal(found[0], bare)


def test_asyncio_tasks_are_told_apart(model):
    expected = {seed: steered_logits(model, random_map(seed=seed)) for seed in (1, 2)}
    bare = run(model, *prompts())

    async def steering(seed):
        with lm.steer(model, {"final": random_map(seed=seed)}):
            await asyncio.sleep(0.01)  # the other tasks enter
            found = run(model, *prompts())
            await asyncio.sleep(0.01)
        return found

    async def untouched():
        await asyncio.sleep(0.005)
        return run(model, *prompts())

    async def together():
        return await asyncio.gather(steering(1), steering(2), untouched())

    first, second, none = asyncio.run(together())
    assert torch.equal(first, expected[1]) and torch.equal(second, expected[2]) and torch.equal(none, bare)


def test_workers_of_a_parallel_pass_belong_to_its_caller(model, monkeypatch):
    # parallel_apply asks for an accelerator before it starts its threads; the threads themselves need none
    monkeypatch.setattr(torch.accelerator, "is_available", lambda *args: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *args: torch.device("cpu"))
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda *args: contextlib.nullcontext())
    monkeypatch.setattr(torch.accelerator, "device_index", lambda *args: contextlib.nullcontext())
    parallel_apply = sys.modules["torch.nn.parallel.parallel_apply"]
    monkeypatch.setattr(parallel_apply, "_get_device_index", lambda *args: 0)
    ids, mask = prompts()
    inputs = [{"input_ids": ids, "attention_mask": mask} for _ in range(2)]
    barrier = threading.Barrier(2)
    maps = [random_map(seed=seed) for seed in (1, 2)]

    def plain(m):
        with lm.steer(model, {"final": m}), torch.no_grad():
            return model(**inputs[0]).logits

    def parallel(m):
        with lm.steer(model, {"final": m}), torch.no_grad():
            barrier.wait()
            found = parallel_apply.parallel_apply([model, model], [(), ()], inputs)
            barrier.wait()
        return [output.logits for output in found]

    expected = [plain(m) for m in maps]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(parallel, maps))
    for outputs, right in zip(found, expected, strict=True):
        assert all(torch.equal(output, right) for output in outputs)


def test_a_thread_reads_only_its_own_passes(model):
    tokenizer, some = tiny_tokenizer(), texts(40, seed=3)
    expected = lm.extract(model, tokenizer, some, progress=False)
    stop = threading.Event()

    def disturb():
        while not stop.is_set():
            run(model, *prompts())

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        found = lm.extract(model, tokenizer, some, batch_size=1, progress=False)
    finally:
        stop.set()
        thread.join()
    assert abs(found - expected).max() < 1e-4 < abs(expected[0] - expected[1]).max()


def test_evaluation_mode_lasts_until_the_last_thread_leaves(model):
    model.train()
    entered, leave = threading.Event(), threading.Event()

    def other():
        with evaluating(model):
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with evaluating(model):
        thread.start()
        entered.wait()
    assert not model.training
    leave.set()
    thread.join()
    assert all(module.training for module in model.modules())


def test_threads_must_be_own_or_all(model):
    with pytest.raises(ParameterError, match="'own', 'all'"), lm.steer(model, {"final": random_map(WIDTH)}, threads=2):
        pass


def test_folding_a_model_that_another_thread_steers_is_refused():
    model = tiny_model("llama")
    entered, leave = threading.Event(), threading.Event()

    def steering():
        with lm.steer(model, {"final": random_map()}):
            run(model, *prompts())
            entered.set()
            leave.wait()

    thread = threading.Thread(target=steering)
    thread.start()
    entered.wait()
    try:
        with pytest.raises(FoldError, match="steered at the moment"):
            lm.fold(model, random_map(), "final")
    finally:
        leave.set()
        thread.join()


def test_a_thread_that_compiles_another_model_disturbs_no_steering(model):
    expected = steered_logits(model, random_map())
    compiling, go_on = threading.Event(), threading.Event()

    def slow(graph, inputs):
        compiling.set()
        go_on.wait()
        return graph.forward

    other = torch.compile(tiny_model("gpt2"), backend=slow)
    thread = threading.Thread(target=lambda: other(prompts()[0]))
    thread.start()
    compiling.wait()
    try:
        assert torch.compiler.is_compiling()
        assert torch.equal(steered_logits(model, random_map()), expected)
    finally:
        go_on.set()
        thread.join()


def test_a_block_for_all_threads_waits_for_those_that_generate(model):
    ids, mask = prompts()
    started, go_on = threading.Event(), threading.Event()

    def pause(module, args):
        started.set()
        go_on.wait()

    handle = model.model.layers[1].register_forward_pre_hook(pause)
    with pytest.raises(SteeringError, match="still generating"):  # noqa: SIM117 - the order is the point
        with lm.steer(model, {"layers.0": random_map()}, threads="all"):
            thread = threading.Thread(target=model.generate, args=(ids,), kwargs={"attention_mask": mask, **SETTINGS})
            thread.start()
            started.wait()
    go_on.set()
    thread.join()
    handle.remove()
