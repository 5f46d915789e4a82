"""What fails inside is counted, shows in the health, and ends no more requests than it must."""

import asyncio
import threading

import pytest
import torch

import repsurgery as rs
from repsurgery.lm.generate.row_decoder import RowDecoder
from repsurgery.lm.steer.rows import RowPlan, prepare_row
from repsurgery.serve import engine as engine_module
from repsurgery.serve.job import Job, RowSpec
from repsurgery.serve.limits import Limits
from repsurgery.serve.metrics import Metrics
from repsurgery.serve.refusals import Refusal
from repsurgery.serve.sources import Sources
from tests.lm.tiny_models import WIDTH, tiny_model, tiny_tokenizer
from tests.serve.running import running

COMPLETION = "/v1/completions"
PROMPT = {"prompt": "w1 w2"}


def metric(server, line):
    lines = server.send("GET", "/metrics")[2].decode().splitlines()
    return next(float(one.split()[-1]) for one in lines if one.startswith(line))


@pytest.mark.parametrize("family", ["gpt2", "opt"])
def test_logits_that_overflow_end_their_own_request_only(family, tmp_path):
    import numpy as np

    # finite at the steered site, and beyond float32 where the next block squares it
    shift = np.random.default_rng(0).normal(size=WIDTH) * 1e36
    huge = rs.SteeringFunction({None: rs.Translation(shift)}).with_origin(site="layers.0")
    rs.save(huge, tmp_path / "huge.safetensors")
    with running(tiny_model(family), tiny_tokenizer(), sources=Sources(folder=tmp_path)) as server:
        how = {"temperature": 0, "max_tokens": 20}
        alone = server.complete(**how)["choices"]
        answers = []
        beside = threading.Thread(target=lambda: answers.append(server.complete(**how)))
        beside.start()
        for warm in (0, 1):
            status, answer, _ = server.post(
                COMPLETION, **PROMPT, logprobs=1, temperature=warm, steering={"name": "huge", "strength": 100}
            )
            assert status == 400 and answer["error"]["code"] == "steering_not_finite"
            assert "Lower the strength" in answer["error"]["message"]
        beside.join()
        assert answers[0]["choices"] == alone
        assert server.send("GET", "/health")[0] == 200


def test_a_model_that_gives_no_numbers_is_not_healthy():
    import torch

    model = tiny_model("llama")
    with torch.no_grad():
        model.lm_head.weight.fill_(float("nan"))
    with running(model, tiny_tokenizer()) as server:
        for _ in range(engine_module.FAILING):
            assert server.send("GET", "/health")[0] == 200
            assert server.post(COMPLETION, **PROMPT)[0] == 500
        assert server.send("GET", "/health")[0] == 503


@pytest.mark.parametrize("where", ["forward", "draw"])
def test_health_fails_after_repeated_failures_and_recovers(where, monkeypatch):
    model = tiny_model("llama")

    def fails(*_, **__):
        raise RuntimeError("no memory")

    with running(model, tiny_tokenizer()) as server:
        with monkeypatch.context() as patched:
            patched.setattr(
                *((model.model, "forward") if where == "forward" else (engine_module, "next_tokens")), fails
            )
            for _ in range(engine_module.FAILING):
                assert server.send("GET", "/health")[0] == 200
                assert server.post(COMPLETION, **PROMPT)[0] == 500
            assert server.send("GET", "/health")[::2] == (503, b'{"status":"failing"}')
        assert server.complete()["choices"]
        assert server.send("GET", "/health")[0] == 200
        assert metric(server, "repsurgery_failed_passes_total") == engine_module.FAILING
        assert metric(server, 'repsurgery_requests_total{path="/v1/completions",status="500"}') == engine_module.FAILING


def test_an_unforeseen_error_is_counted_and_hidden(monkeypatch, caplog):
    with running(tiny_model("llama"), tiny_tokenizer()) as server:

        async def fails():
            raise RuntimeError("a secret of the machine")

        monkeypatch.setattr(server.service, "steering_names", fails)
        status, _, data = server.send("GET", "/v1/models")
        assert status == 500 and b'"type":"server_error"' in data and b"secret" not in data
        assert "a secret of the machine" in caplog.text
        assert metric(server, 'repsurgery_requests_total{path="/v1/models",status="500"}') == 1


def test_long_prompts_are_read_in_several_passes(monkeypatch):
    from tests.serve.conftest import endless

    read, join = [], engine_module.RowDecoder.join

    def counted(self, prompts, *rest, **how):
        read.append(len(prompts) * max(map(len, prompts)))
        return join(self, prompts, *rest, **how)

    monkeypatch.setattr(engine_module.RowDecoder, "join", counted)
    with running(*endless()) as server:
        server.complete("w1 " * 999, n=10, max_tokens=2)
    assert read == [4000, 4000, 2000]


@pytest.mark.parametrize("running_rows", [0, 1, 3])
@pytest.mark.parametrize("failing", [{0}, {1}, {2}, {0, 2}])
def test_a_failing_steering_ends_its_own_request_wherever_it_joins(running_rows, failing):
    """Rows join those that run already; the steerings of some overflow in their first pass."""
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    huge = prepare_row(model, {"layers.0": rs.Translation([1e39] * WIDTH)})

    async def joined():
        engine = engine_module.Engine(model, tokenizer, Limits(), Metrics())

        def row(plan):
            spec = RowSpec(0, [1, 5, 6], plan, b"", 0.0, 1.0, 8)
            return engine_module.Row(Job([spec], True, 1e18, 99), spec, tokenizer, ())

        with torch.inference_mode(), RowDecoder(model, tokenizer) as decoder:
            before = [row(RowPlan()) for _ in range(running_rows)]
            rows = [row(huge if i in failing else RowPlan()) for i in range(3)]
            for some in (before, rows):
                if some:
                    engine._join(decoder, some)
        ended = [{i for i, one in enumerate(some) if one.job.ended} for some in (before, rows)]
        for i in failing:
            with pytest.raises(Refusal, match="beyond") as refusal:
                await rows[i].job.next()
            assert refusal.value.code == "steering_not_finite"
        return ended, [one.drawn for one in rows]

    ended, drawn = asyncio.run(joined())
    assert ended == [set(), failing]
    assert drawn == [int(i not in failing) for i in range(3)]
