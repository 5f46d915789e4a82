"""A body means one thing: no field is named twice, and true and false are no numbers."""

import json

import numpy as np
import pytest

import repsurgery as rs
from repsurgery.errors import ParameterError
from repsurgery.serve.app import create_app
from repsurgery.serve.schema import NEUTRAL
from repsurgery.serve.service import Service
from repsurgery.serve.sources import Sources
from repsurgery.serve.steerings import Steerings
from tests.lm.tiny_models import WIDTH, tiny_model
from tests.serve.running import steering

COMPLETION, CHAT = "/v1/completions", "/v1/chat/completions"
BODIES = {COMPLETION: {"prompt": "w1 w2"}, CHAT: {"messages": [{"role": "user", "content": "w1"}]}}

REPEATED = {
    "prompt": b'{"prompt": "w1", "prompt": "w2"}',
    "n": b'{"n": 1, "prompt": "w1", "n": 1}',
    "strength": b'{"prompt": "w1", "steering": {"name": "first", "strength": 0.5, "strength": 2}}',
    "name": b'{"prompt": "w1", "steering": [{"name": "first"}, {"name": "first", "name": "second"}]}',
    "a": b'{"prompt": "w1", "metadata": {"b": {"a": 1, "a": 1}}}',
    "seed": b'{"prompt": "w1", "seed": 1, "\\u0073eed": 2}',  # the same name, spelled otherwise
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_repeated_field_is_refused_at_every_depth(served, name):
    for path in BODIES:
        status, _, data = served.send("POST", path, REPEATED[name])
        error = json.loads(data)["error"]
        assert status == 400 and error["type"] == "invalid_request_error"
        assert f"names the field {name!r} twice" in error["message"] and "Send it once" in error["message"]
    # the same name in two objects is no repetition
    again = {"steering": [{"name": "first", "strength": 0.5}, {"name": "second", "strength": 0.5}]}
    assert served.complete(max_tokens=1, metadata={"n": 1, "a": {"n": 1}}, n=1, **again)["choices"]


NUMBERS = {
    "temperature": 1,
    "top_p": 1,
    "n": 1,
    "seed": 0,
    "max_tokens": 1,
    "max_completion_tokens": 1,
    "best_of": 1,
    **{
        name: values[0]
        for name, values in NEUTRAL.items()
        if isinstance(values[0], int) and not isinstance(values[0], bool)
    },
}
FLAGS = [name for name, values in NEUTRAL.items() if isinstance(values[0], bool)] + ["stream"]


@pytest.mark.parametrize("path", BODIES)
def test_true_and_false_are_no_numbers_and_numbers_are_neither(served, path):
    assert {"frequency_penalty", "logit_bias", "min_p", "echo"} <= {*NUMBERS, *FLAGS, "logit_bias"}
    how = {**BODIES[path], "max_tokens": 1} if path else {}
    for name, value in NUMBERS.items():
        assert served.post(path, **{**how, name: value})[0] == 200, name
        for boolean in (True, False):
            status, answer, _ = served.post(path, **{**how, name: boolean})
            assert status == 400 and name in answer["error"]["message"], (name, boolean)
    for name in FLAGS:
        for number in (0, 1):
            assert served.post(path, **{**how, name: number})[0] == 400, (name, number)
    for field in ("strength", "scale"):
        for boolean in (True, False):
            status, answer, _ = served.post(path, **how, steering={"name": "first", field: boolean})
            assert status == 400 and "valid number" in answer["error"]["message"]


def test_every_operation_of_the_description_is_named_once():
    """Warnings are errors here, and FastAPI warns of a repeated name."""
    described = create_app(Service(lambda: None, "tiny")).openapi()
    names = [operation["operationId"] for path in described["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names)) >= 6
    choice = described["components"]["schemas"]["SteeringChoice"]["properties"]
    assert set(choice) == {"name", "strength", "positions", "scale"}


def test_health_answers_head_and_get(served):
    assert served.send("HEAD", "/health")[::2] == (200, b"")
    assert served.send("GET", "/health")[::2] == (200, b'{"status":"ready"}')
    assert served.send("HEAD", "/metrics")[0] == 405


UNUSABLE = {
    "another width": lambda: rs.SteeringFunction({None: rs.Translation(np.ones(WIDTH + 1))}).with_origin(site="final"),
    "another site": lambda: steering(1, site="layers.17"),
    "another model": lambda: steering(1, model="another", fingerprint="0ddba11"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_named_file_that_does_not_fit_stops_the_server(case, tmp_path, caplog):
    good, bad = tmp_path / "good.safetensors", tmp_path / "bad.safetensors"
    rs.save(steering(1), good)
    rs.save(UNUSABLE[case](), bad)
    with pytest.raises(ParameterError, match=r"bad\.safetensors cannot be used with this model\. .*"):
        Steerings(tiny_model("llama"), Sources({"good": good, "bad": bad}))
    # the same file in a folder is left out, and a named one that fits is served
    assert Steerings(tiny_model("llama"), Sources({"good": good}, tmp_path)).names() == ["good"]
    assert f"{bad} is left out" in caplog.text
