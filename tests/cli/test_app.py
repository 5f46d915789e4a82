import subprocess
import sys

import pytest

import repsurgery
from repsurgery.steering.base import METHODS

VERBS = ["fit", "generate", "inspect", "fold", "demo", "guarantees"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(run, verb):
    result = run(verb, "--help")
    assert result.exit_code == 0
    assert verb in result.stdout


def test_the_version_is_the_packages(run):
    assert run("--version").stdout == f"repsurgery {repsurgery.__version__}\n"


def test_an_unknown_verb_is_a_usage_error(run):
    assert run("magic").exit_code == 2


@pytest.mark.parametrize("name", list(METHODS.own()))
def test_methods_of_the_command_are_those_of_the_library(run, tmp_path, name):
    result = run("fit", "--method", name, "--out", tmp_path / "f")
    assert result.exit_code == 1 and "Pass either a table" in result.stderr
    unknown = run("fit", "--method", "magic", "--out", tmp_path / "f")
    assert unknown.exit_code == 2 and name in unknown.stderr


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_extra_the_command_says_what_to_install(missing):
    code = f"import sys; sys.modules[{missing!r}] = None\nfrom repsurgery.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "Error: The command line needs Rich and Typer: pip install 'repsurgery[cli]'\n"


def test_help_does_not_wait_for_torch():
    code = "import sys\nfrom repsurgery.cli.app import app\nassert 'torch' not in sys.modules, 'torch was imported'"
    subprocess.run([sys.executable, "-c", code], check=True)
