"""A tiny model in a folder, tables of tiny texts, and a runner."""

import json

import pytest
from typer.testing import CliRunner

from repsurgery.cli.app import app
from tests.lm.tiny_models import WORDS, tiny_model, tiny_tokenizer


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny_model("llama").save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def write_table(path):
    """Write a CSV of 60 texts whose labels differ in their words."""
    lines = [f"{WORDS[i % 7]} {WORDS[i % 11]} {WORDS[20 * (i % 2) + i % 5]},{'ab'[i % 2]}" for i in range(60)]
    path.write_text("\n".join(["sentence,tone", *lines]))


@pytest.fixture
def table(tmp_path):
    """Return the CSV of `write_table`."""
    write_table(tmp_path / "texts.csv")
    return tmp_path / "texts.csv"


@pytest.fixture
def run(monkeypatch):
    """Return a function that runs the command line and gives exit code, output and errors."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    runner = CliRunner()
    return lambda *words: runner.invoke(app, [str(word) for word in words])


@pytest.fixture
def fitted(run, table, model_folder, tmp_path):
    """Return a file fitted by the command line."""
    out = tmp_path / "tone.safetensors"
    result = run(
        *("fit", table, "--text-column", "sentence", "--label-column", "tone", "--model", model_folder),
        *("--method", "mimic", "--source", "a", "--target", "b", "--shrinkage", "oas", "--out", out),
    )
    assert result.exit_code == 0, result.output
    return out


@pytest.fixture
def as_json(run):
    """Return a function that inspects a file and gives its description."""
    return lambda path: json.loads(run("inspect", path, "--json").stdout)
