import re
import subprocess
import sys

import pytest
from typer.main import get_command

import repsurgery
from repsurgery.cli.app import VERBS, app
from repsurgery.steering.base import METHODS

FRAMEWORKS = ("numpy", "scipy", "sklearn", "torch", "transformers", "pydantic", "jinja2", "matplotlib", "ray", "dask")


def imported(*words):
    """Return the modules that a command imports, by their full names."""
    code = f"""
import sys
sys.argv = ["repsurgery", *{words!r}]
from repsurgery.cli import main
try:
    main()
except SystemExit as stop:
    assert stop.code == 0, stop.code
sys.stderr.write(" ".join(sys.modules))
"""
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.split())


def verb_modules():
    return {verb: f"repsurgery.cli.{verb.replace('-', '_')}" for verb in VERBS}


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "lm-eval"])  # whose --help is that of the harness
def test_every_verb_explains_itself(run, verb):
    result = run(verb, "--help")
    assert result.exit_code == 0
    assert verb in result.stdout


def test_the_list_of_verbs_shows_the_help_of_each(run):
    shown = " ".join(re.sub(r"[│╭╮╰╯─]", " ", run("--help").stdout).split())
    group = get_command(app)
    for verb in VERBS:
        summary = group.get_command(None, verb).help.split("\n\n")[0]
        assert f"{verb} {' '.join(summary.split())}" in shown


def test_the_version_is_the_packages(run):
    assert run("--version").stdout == f"repsurgery {repsurgery.__version__}\n"


def test_an_unknown_verb_is_a_usage_error(run):
    assert run("magic").exit_code == 2
    assert "Did you mean 'fit'?" in run("fitt").stderr


@pytest.mark.parametrize("name", list(METHODS.own()))
def test_methods_of_the_command_are_those_of_the_library(run, tmp_path, name):
    result = run("fit", "--method", name, "--out", tmp_path / "f")
    assert result.exit_code == 2 and "Pass either a table" in result.stderr
    unknown = run("fit", "--method", "magic", "--out", tmp_path / "f")
    assert unknown.exit_code == 2 and name in unknown.stderr


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_extra_the_command_says_what_to_install(missing):
    code = f"import sys; sys.modules[{missing!r}] = None\nfrom repsurgery.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "Error: The command line needs Rich and Typer: pip install 'repsurgery[cli]'\n"


@pytest.mark.parametrize("words", [("--help",), ("--version",)])
def test_help_imports_no_verb(words):
    assert not imported(*words) & {*FRAMEWORKS, *verb_modules().values()}


@pytest.mark.parametrize("verb", ["fit", "export", "generate", "merge", "moments", "plan"])
def test_the_help_of_a_verb_imports_that_verb_alone(verb):
    modules = imported(verb, "--help")
    assert modules & {*verb_modules().values()} == {verb_modules()[verb]}
    assert not modules & {*FRAMEWORKS} - {"pydantic"}  # Typer imports it where it is installed


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("plan", "--rows", "0", "--width", "4"), "--rows is 0; it must be a whole number of at least 1."),
        (("moments", "x", "--labels", "z", "--out", "m", "--rows-per-shard", "0"), "--rows-per-shard is 0; a shard"),
    ],
)
def test_errors_name_flags(run, words, error):
    result = run(*words)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {error}")


def test_help_shows_defaults_that_depend_on_other_inputs(run):
    assert "[default: (smollm2-135m)]" in " ".join(run("fit", "--help").stdout.split())
    assert "one per core" in run("moments", "--help").stdout
