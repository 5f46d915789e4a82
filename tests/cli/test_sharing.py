"""Commands take steerings by name: a file, the zoo or the hub; ``push`` shares one, ``zoo`` lists the package's."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import repsurgery as rs
from tests.certificates.test_outcome import outcome
from tests.lm.tiny_models import WIDTH
from tests.steering.hub_stand_in import WRITE, Repository, running_hub, use

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")


@pytest.fixture
def kinder(tmp_path):
    path = tmp_path / "kinder.safetensors"
    origin = rs.Origin(model="tiny", site="final", strength=0.5, positions="all")
    shift = rs.SteeringFunction({None: rs.Translation(np.full(WIDTH, 0.1))}, origin=origin)
    rs.save(shift.with_outcome(outcome()), path)
    return path


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with running_hub() as (address, held):
        use(monkeypatch, address, tmp_path / "cache")
        monkeypatch.setenv("HF_TOKEN", WRITE)
        yield held


def test_a_pushed_steering_is_generated_with_by_its_name(run, hub, kinder, model_folder):
    pushed = run("push", kinder, "me/kinder", "--licence", "mit", "--fitted-on", "Some texts.", "--private")
    assert pushed.exit_code == 0, pushed.output
    assert "Use it as hub:me/kinder" in pushed.stdout
    assert hub.repositories["me/kinder"].private
    assert "license: mit" in hub.repositories["me/kinder"].branches["main"]["README.md"].decode()
    words = ("--model", model_folder, "--prompt", "w1 w2", "--max-new-tokens", 3)
    by_name = run("generate", "--steering", "hub:me/kinder", *words)
    assert by_name.exit_code == 0, by_name.output
    assert by_name.stdout == run("generate", kinder, *words).stdout
    assert "kinder: at final, strength 0.5" in by_name.stdout
    assert json.loads(run("inspect", "hub:me/kinder", "--json").stdout)["outcome"] == outcome().to_dict()


def test_arguments_and_options_name_steerings_together(run, kinder, model_folder):
    words = ("--model", model_folder, "--prompt", "w1", "--max-new-tokens", 2)
    result = run("generate", kinder, "--steering", kinder, *words)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("kinder: at final") == 2


def test_generate_without_a_steering_names_the_option(run):
    result = run("generate", "--prompt", "w1")
    assert result.exit_code == 2
    assert "--steering" in result.stderr and "courteous" in result.stderr


def test_an_unknown_name_is_one_line_that_lists_the_zoo(run, hub):
    result = run("generate", "--steering", "curteous", "--prompt", "w1")
    assert result.exit_code == 1
    (line,) = result.stderr.strip().splitlines()
    assert ", ".join(rs.zoo.names()) in line and "hub:OWNER/NAME" in line
    assert hub.asked == []


def test_problems_with_the_hub_are_one_line(run, hub, kinder, monkeypatch):
    hub.repositories["me/model"] = Repository(branches={"main": {"config.json": b"{}"}})
    for words, says in (
        (("generate", "--steering", "hub:me/absent", "--prompt", "w1"), "There is no repository me/absent"),
        (("inspect", "hub:me/model"), "holds no steering"),
        (("push", kinder, "no-owner"), "write it as OWNER/NAME"),
        (("push", kinder, "me/kinder", "--dataset", "x"), "write it as OWNER/NAME"),
        (("push", "absent", "me/kinder"), "There is no file to read"),
    ):
        result = run(*words)
        (line,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
        assert (result.exit_code, says in line) == (1, True), line
        assert "Traceback" not in result.stderr
    monkeypatch.setenv("HF_TOKEN", "hf_read")
    result = run("push", kinder, "me/kinder")
    assert result.exit_code == 1
    assert "status 403" in result.stderr


def test_a_repository_can_be_read_before_it_is_uploaded(run, kinder, tmp_path):
    out = tmp_path / "shared"
    result = run("push", kinder, "me/kinder", "--out", out, "--json")
    assert json.loads(result.stdout) == {"repository": "me/kinder", "folder": str(out)}
    assert "hub:me/kinder" in (out / "README.md").read_text()
    assert rs.load(out).outcome == rs.load(kinder).outcome


def test_the_variable_of_the_hub_decides_where_a_command_looks(kinder, tmp_path):
    command = [sys.executable, "-m", "repsurgery"]
    with running_hub() as (address, held):
        settings = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path), "HF_TOKEN": WRITE, "HF_HUB_OFFLINE": "0"}
        settings |= {"HF_HUB_DISABLE_XET": "1"}

        def done(*words):
            return subprocess.run(
                [*command, *words], env=os.environ | settings, capture_output=True, text=True, check=False
            )

        pushed = done("push", str(kinder), "me/kinder")
        assert pushed.returncode == 0, pushed.stderr
        assert "README.md" in held.repositories["me/kinder"].branches["main"]
        shown = done("inspect", "hub:me/kinder", "--json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["outcome"] == outcome().to_dict()


def test_the_zoo_is_listed_with_effects_and_prices(run):
    shown = " ".join(run("zoo").stdout.split())
    facts = json.loads(run("zoo", "--json").stdout)
    assert tuple(facts) == rs.zoo.names()
    for name, entry in facts.items():
        assert f"{name} for smollm2-135m" in shown
        assert rs.Outcome.from_dict(entry["outcome"]).words() in shown


def test_a_zoo_entry_is_inspected_by_its_name(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in rs.zoo.names():
        assert json.loads(run("inspect", name, "--json").stdout)["outcome"] == rs.load(name).outcome.to_dict()
