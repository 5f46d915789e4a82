"""The code that a guide gives to extend the library passes the checks that the library's own files pass."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import repsurgery as rs
from repsurgery.cli.app import app
from repsurgery.registry import _entry_points
from tests.lm.tiny_models import WIDTH, tiny_model, tiny_tokenizer
from tests.plugins import write_plugin

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "guide" / "extending.md").read_text(), re.M | re.S)
DEFINITIONS = [block for block in BLOCKS if re.search(r"^(class|def) ", block, re.M)]
UNANNOTATED = "def half(x):\n    return x / 2\n"


def checks(*command):
    return subprocess.run([sys.executable, "-m", *map(str, command)], cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return the folder of a file for each block that defines something, as a reader would save it."""
    folder = tmp_path_factory.mktemp("guide")
    for i, block in enumerate(DEFINITIONS):
        (folder / f"block_{i}.py").write_text(f'"""A file of the guide."""\n\n{block}')
    return folder


def test_the_guide_shows_every_kind_of_extension():
    assert len(DEFINITIONS) == 11


def test_code_of_the_guide_is_formatted_and_linted_as_ours(files):
    config = ("--config", ROOT / "pyproject.toml", "--no-cache")
    for command in (("ruff", "format", "--check", *config), ("ruff", "check", *config, "--ignore", "INP001")):
        done = checks(*command, files)
        assert done.returncode == 0, done.stdout + done.stderr


def test_code_of_the_guide_has_the_types_that_strict_checks_ask_for(files, tmp_path):
    done = checks("mypy", "--config-file", ROOT / "pyproject.toml", *sorted(files.glob("*.py")))
    own = [line for line in done.stdout.splitlines() if line.startswith(str(files)) or "block_" in line]
    assert done.returncode in (0, 1) and not own, done.stdout + done.stderr


def defining(name):
    (block,) = [block for block in DEFINITIONS if f" {name}(" in block or f"class {name}:" in block]
    return block


def test_the_export_import_and_command_of_the_guide_work_from_their_files_alone(tmp_path, monkeypatch):
    shift = rs.SteeringFunction(
        {None: rs.Translation(np.arange(WIDTH, dtype=float))}, origin=rs.Origin(site="layers.1")
    )
    rs.save(shift, tmp_path / "shift")
    tiny_model("llama").save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    entries = {
        "exporters": ("NumpyExport", {"numpy": "{module}:exporter"}),
        "importers": ("JsonImport", {"json": "{module}:importer"}),
        "commands": ("lengths", {"lengths": "{module}:lengths"}),
    }
    for kind, (name, names) in entries.items():
        write_plugin(tmp_path / "site", f"guide_{kind}", defining(name), {f"repsurgery.{kind}": names})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)
    _entry_points.cache_clear()

    def run(*words):
        done = CliRunner().invoke(app, list(words))
        assert done.exit_code == 0, done.output
        return done.stdout

    try:
        run("export", "shift", "--model", "model", "--to", "numpy", "--strength", "0.25", "--out", "v.npy")
        assert np.array_equal(np.load("v.npy"), np.arange(WIDTH) / 4)
        Path("v.json").write_text('{"layer": 1, "vector": [3.0, 4.0]}')
        run("import", "v.json", "--from", "json", "--out", "five")
        assert rs.load("five").origin.site == "layers.1"
        assert run("lengths", "five") == "None: 5\n"
    finally:
        _entry_points.cache_clear()


def test_the_checks_see_code_without_annotations(tmp_path):
    # the counter-check
    (tmp_path / "block_0.py").write_text(f'"""A file."""\n\n{UNANNOTATED}')
    config = ROOT / "pyproject.toml"
    assert "ANN001" in checks("ruff", "check", "--no-cache", "--config", config, tmp_path).stdout
    assert "no-untyped-def" in checks("mypy", "--config-file", config, tmp_path / "block_0.py").stdout
