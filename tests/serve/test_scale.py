"""`scale` over HTTP: it multiplies the strength in force, within the limits of strengths, and answers hold warnings."""

import json

import numpy as np
import pytest

import repsurgery as rs
from repsurgery.price import Price
from repsurgery.serve.sources import Sources
from tests.certificates.test_outcome import outcome
from tests.lm.tiny_models import WIDTH, tiny_model
from tests.serve.running import chat_tokenizer, running, steering

COMPLETION, CHAT = "/v1/completions", "/v1/chat/completions"
BODIES = {COMPLETION: {"prompt": "w1 w2"}, CHAT: {"messages": [{"role": "user", "content": "w1"}]}}
HOW = {"temperature": 0, "max_tokens": 6, "logprobs": 2}


def priced(i, kl):
    shift = rs.SteeringFunction({None: rs.Translation(np.eye(WIDTH)[i])}).with_origin(site="layers.0")
    return shift.with_price(Price(rs.Fisher(1, 2 * kl * np.eye(WIDTH)), site="layers.0"))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("steerings")
    files = {
        "bare": steering(1),
        "half": steering(1, strength=0.5),
        "tuned": steering(1, strength=0.18).with_outcome(outcome(kl=0.1)),
        "strong": steering(1, size=1e-9, strength=150.0),
        "one": priced(0, 0.1),
        "two": priced(1, 0.1),
    }
    for name, function in files.items():
        rs.save(function, folder / f"{name}.safetensors")
    with running(tiny_model("llama"), chat_tokenizer(), sources=Sources(folder=folder), max_new_tokens=40) as server:
        yield server


def answered(server, *steerings, **more):
    return server.complete(**HOW, steering=list(steerings), **more)


def choices(server, *steerings):
    return answered(server, *steerings)["choices"]


@pytest.mark.parametrize("scale", [0, -1, 0.5, 2, 199.0])
def test_a_scale_multiplies_the_strength_in_force(server, scale):
    absolute = choices(server, {"name": "bare", "strength": 0.5 * scale})
    assert choices(server, {"name": "half", "scale": scale}) == absolute
    assert choices(server, {"name": "bare", "strength": 0.5, "scale": scale}) == absolute
    assert choices(server, {"name": "half", "strength": 0.5, "scale": scale, "positions": "all"}) == absolute
    if scale == 0:
        assert absolute == choices(server)
    else:
        assert absolute != choices(server, {"name": "half"})  # counter-check: no scale is a scale of 1
    assert choices(server, {"name": "half", "scale": 1}) == choices(server, {"name": "half", "scale": None})


BAD = {
    "NaN": ("finite number", b"NaN"),
    "infinity": ("finite number", b"Infinity"),
    "beyond floats": ("finite number", b"1e999"),
    "true": ("valid number", b"true"),
    "false": ("valid number", b"false"),
    "text": ("valid number", b'"2"'),
    "list": ("valid number", b"[2]"),
    "1e9": ("must lie between -100 and 100", b"1e9"),
    "-201": ("must lie between -100 and 100", b"-201"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_scale_is_refused(server, case):
    message, value = BAD[case]
    body = b'{"prompt": "w1", "steering": {"name": "half", "scale": ' + value + b"}}"
    status, _, data = server.send("POST", COMPLETION, body)
    error = json.loads(data)["error"]
    assert status == 400 and message in error["message"] and error["param"] == "steering"


def test_the_limit_of_strengths_bounds_the_product(server):
    for sent in ({"strength": 100, "scale": 1.01}, {"strength": -50, "scale": 2.1}, {"strength": 100, "scale": -1e300}):
        status, answer, _ = server.post(COMPLETION, prompt="w1", steering={"name": "half", **sent})
        assert status == 400 and "between -100 and 100" in answer["error"]["message"]
    status, answer, _ = server.post(COMPLETION, prompt="w1", steering={"name": "strong", "scale": 1e308})
    assert status == 400 and "not a finite number" in answer["error"]["message"]
    # what a file asks for itself was never limited, and may be scaled down
    assert choices(server, {"name": "strong"}) and choices(server, {"name": "strong", "scale": 0.1})
    assert server.post(COMPLETION, prompt="w1", steering={"name": "strong", "scale": 0.9})[0] == 400


def test_a_scale_belongs_inside_the_steering(server):
    status, answer, _ = server.post(COMPLETION, prompt="w1", scale=2)
    assert status == 400 and "send it inside steering" in answer["error"]["message"]
    status, answer, _ = server.post(COMPLETION, prompt="w1", steering={"name": "half", "kl_budget": 0.1, "scale": 2})
    assert status == 400 and "Unknown field 'kl_budget'" in answer["error"]["message"]


FAR = [{"scale": 2.01}, {"scale": -3}, {"strength": 0.4}, {"strength": 0.2, "scale": 2}]
NEAR = [{}, {"scale": 2}, {"scale": -2}, {"scale": 0}, {"strength": 0.3}]


@pytest.mark.parametrize("path", BODIES)
def test_answers_warn_above_twice_the_measured_strength(server, path):
    for sent in FAR:
        for _ in range(2):  # the second time the plan is one that was kept
            status, answer, headers = server.post(
                path, **BODIES[path], max_tokens=2, steering={"name": "tuned", **sent}
            )
            assert status == 200
            (said,) = answer["warnings"]
            assert said.startswith("tuned: strength ") and "more than twice 0.18" in said
            assert headers["x-repsurgery-warning"] == said
    for sent in NEAR:
        status, answer, headers = server.post(path, **BODIES[path], max_tokens=2, steering={"name": "tuned", **sent})
        assert status == 200 and "warnings" not in answer and "x-repsurgery-warning" not in headers
    # nothing was measured of this one
    assert "warnings" not in server.post(path, **BODIES[path], max_tokens=2, steering={"name": "half", "scale": 9})[1]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("usage", [False, True])
def test_the_last_chunk_of_a_stream_holds_the_warnings(server, path, usage):
    for n in (1, 3):
        *events, done = server.events(
            path,
            **BODIES[path],
            n=n,
            max_tokens=4,
            steering={"name": "tuned", "scale": 5},
            stream_options={"include_usage": usage},
        )
        assert done == "[DONE]"
        assert [len(event.get("warnings", ())) for event in events] == [0] * (len(events) - 1) + [1]
        assert ("usage" in events[-1]) == usage
    *events, _ = server.events(path, **BODIES[path], max_tokens=4, steering={"name": "tuned", "scale": 2})
    assert not any("warnings" in event for event in events)


def test_prices_that_add_up_are_said(server):
    (said,) = answered(server, {"name": "one"}, {"name": "two"})["warnings"]
    assert "0.2 nats per token (0.1 + 0.1), because prices add up" in said
    (said,) = answered(server, {"name": "tuned"}, {"name": "two"})["warnings"]
    assert "prices add up" in said
    # a price is proportional to the square of the strength
    (said,) = answered(server, {"name": "one", "scale": 2}, {"name": "two", "strength": 2})["warnings"]
    assert "0.8 nats" in said
    for alone in (
        [{"name": "one"}],
        [{"name": "one"}, {"name": "bare"}],
        [{"name": "one"}, {"name": "two", "scale": 0}],
    ):
        assert "warnings" not in answered(server, *alone)
