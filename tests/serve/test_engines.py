"""The server runs any engine of the protocol, and says what is wrong with one that is not."""

import re
import sys
from pathlib import Path

import pytest

from repsurgery.errors import ParameterError, PluginWarning
from repsurgery.registry import _entry_points
from repsurgery.serve.engine import Engine
from repsurgery.serve.engines import ENGINES, lacking
from repsurgery.serve.server import Server, listen
from repsurgery.serve.service import Service
from tests.lm.tiny_models import tiny_model, tiny_tokenizer
from tests.plugins import write_plugin
from tests.serve.running import running

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "extending.md"
(ECHO,) = re.findall(r"^```python\n((?:(?!```).)*?class Echo:.*?)^```", GUIDE.read_text(), re.M | re.S)
ODD = """
class Halfway:
    def start(self): ...
    def submit(self, job): ...

def halfway(model, tokenizer, limits, metrics):
    return Halfway()

number = 3
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    site = tmp_path / "site"
    write_plugin(site, "acme_echo", ECHO, {"repsurgery.engines": {"echo": "acme_echo:Echo"}})
    names = {name: f"acme_odd:{name}" for name in ("Halfway", "halfway", "number")}
    write_plugin(site, "acme_odd", ODD, {"repsurgery.engines": names})
    broken = {"broken": "acme_gone:x", "transformers": "acme_gone:y"}
    write_plugin(site, "acme_gone", "raise RuntimeError('no driver')", {"repsurgery.engines": broken})
    monkeypatch.syspath_prepend(str(site))
    _entry_points.cache_clear()
    yield
    for name in ("acme_echo", "acme_odd", "acme_gone"):
        sys.modules.pop(name, None)
    _entry_points.cache_clear()


def test_the_embedded_engine_has_the_protocol_and_is_the_default():
    assert lacking(Engine) == [] and ENGINES.own() == {"transformers": Engine}
    assert lacking(object()) == ["start", "submit", "busy", "failing", "close", "stop"]


def test_the_engine_of_the_guide_answers(installed):
    model = tiny_model("llama")
    with running(model, tiny_tokenizer(), engine="echo") as server:
        answer = server.complete("w1 w2 w3", n=2)
        assert [choice["text"] for choice in answer["choices"]] == ["w1 w2 w3"] * 2
        assert server.streamed(prompt="w4 w5") == "w4 w5"
        server.engine.close()
        assert server.send("POST", "/v1/completions", {"prompt": "w1"})[0] == 503


@pytest.mark.parametrize(
    ("name", "problem"),
    [("broken", "RuntimeError: no driver"), ("number", "not a function"), ("Halfway", "a class with start, submit")],
)
def test_an_engine_that_is_broken_is_named_before_a_model_loads(installed, name, problem):
    with pytest.warns(PluginWarning, match=problem) as caught, pytest.raises(ParameterError, match=name):
        Service(lambda: pytest.fail("a model was loaded"), "tiny", engine=name)
    assert len(caught) == 1


def test_what_a_function_returns_must_have_the_protocol(installed):
    service = Service(lambda: (tiny_model("llama"), tiny_tokenizer()), "tiny", engine="halfway")
    with (
        pytest.warns(PluginWarning, match="'halfway' .* its engine has no busy, failing, close, stop"),
        pytest.raises(ParameterError, match="'halfway'; it cannot be used"),
    ):
        Server(service).run_on(listen("127.0.0.1", 0))


def test_a_plugin_never_replaces_the_embedded_engine(installed):
    with pytest.warns(PluginWarning, match="'transformers', which is a name of repsurgery") as caught:
        assert ENGINES["transformers"] is Engine
    assert len(caught) == 1
