"""Commands, exports and imports of plugins: each is one object of a package, and a broken one stops nothing else."""

import json
import subprocess
import sys

import numpy as np
import pytest

import repsurgery as rs
from repsurgery import lm
from repsurgery.registry import _entry_points
from tests.cli.test_app import FRAMEWORKS
from tests.lm.tiny_models import WIDTH, tiny_model
from tests.plugins import write_plugin

COMMANDS = """
from typing import Annotated

import typer

from repsurgery.errors import ParameterError

app = typer.Typer()


@app.command()
def first(count: int = 1) -> None:
    "Count."
    print("first", count)


@app.command()
def second() -> None:
    "Fail."
    raise ParameterError("count is 0; it must be positive.")


def shout(word: Annotated[str, typer.Argument(help="A word.")], times: int = 2) -> dict[str, str]:
    "Shout a word."
    if times < 1:
        raise ParameterError("times is 0; it must be positive.")
    return {"shouted": word.upper() * times}


def unreadable(what: "Nowhere"):
    pass


number = 3
"""
BROKEN = "raise RuntimeError('no licence')"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return a function that installs a package with these entry points by group."""
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(str(site))

    def install(package, source, **entries):
        write_plugin(site, package, source, {f"repsurgery.{group}": names for group, names in entries.items()})
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.delitem(sys.modules, package, raising=False)
        _entry_points.cache_clear()

    yield install
    _entry_points.cache_clear()


@pytest.fixture
def saved(tmp_path):
    file = tmp_path / "shift.safetensors"
    shift = rs.Translation(np.arange(WIDTH, dtype=float))
    rs.save(rs.SteeringFunction({None: shift}, origin=rs.Origin(site="layers.1")), file)
    return file


def test_a_function_and_an_app_become_verbs(run, installed):
    names = {"count": "acme_commands:app", "shout": "acme_commands:shout"}
    installed("acme_commands", COMMANDS, commands=names)
    listed = run("--help").stdout
    assert "Commands of other packages" in listed and "A command of the package acme_commands" in listed
    assert "acme_commands" not in sys.modules
    assert run("count", "first", "--count", 3).stdout == "first 3\n"
    assert json.loads(run("shout", "hey", "--json").stdout) == {"shouted": "HEYHEY"}
    assert "A word." in run("shout", "--help").stdout
    for words, line in ((("count", "second"), "count is 0"), (("shout", "hey", "--times", 0), "--times is 0")):
        failed = run(*words)
        assert failed.exit_code == 1 and failed.stderr == f"Error: {line}; it must be positive.\n"
    assert run("doctor", "--help").stderr == ""


def test_a_broken_command_is_one_warning(run, installed):
    names = {"broken": "acme_broken:x", "other": "acme_broken:y"}
    installed("acme_broken", BROKEN, commands=names)
    installed("acme_commands", COMMANDS, commands={"number": "acme_commands:number", "odd": "acme_commands:unreadable"})
    for name, problem in (("broken", "RuntimeError: no licence"), ("number", "not a Typer app"), ("odd", "NameError")):
        result = run(name)
        assert result.exit_code == 1
        assert result.stderr.count("Warning:") == 1
        assert f"The plugin '{name}' (repsurgery.commands)" in result.stderr and problem in result.stderr
        assert "Traceback" not in result.stderr
    usual = run("guarantees", "--help")
    assert usual.exit_code == 0 and usual.stderr == ""
    assert "broken" in run("--help").stdout


def test_a_command_never_replaces_one_of_ours(run, installed):
    installed("acme_thief", BROKEN, commands={"fit": "acme_thief:x"})
    for words in (("fit", "--help"), ("--help",)):
        result = run(*words)
        assert result.exit_code == 0 and "acme_thief" not in sys.modules
        assert result.stderr.count("Warning:") == 1
        assert "acme_thief 1.0 registers the command 'fit', which is a name of repsurgery" in result.stderr
    assert run("doctor", "--help").stderr == ""


def test_listing_the_commands_of_plugins_imports_nothing(installed, tmp_path):
    installed("acme_heavy", "import numpy", commands={"heavy": "acme_heavy:x"})
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); sys.argv = ['repsurgery', '--help']\n"
        "from repsurgery.cli import main\ntry:\n    main()\nexcept SystemExit: pass\n"
        "sys.stderr.write(' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "heavy" in done.stdout
    assert not {"acme_heavy", *FRAMEWORKS} & set(done.stderr.split())


EXPORTERS = """
import json
from pathlib import Path

from repsurgery.errors import FoldError
from repsurgery.lm import ExportTarget


class Plain:
    name, extra, options = "plain", "", {"digits": int, "signed": bool}

    def check(self, placement, model):
        if placement.site == "final":
            raise FoldError("There is no vector at the end.")
        return ExportTarget(self.name)

    def write(self, placement, model, path, digits=6, signed=True):
        assert isinstance(digits, int) and isinstance(signed, bool)
        (m,) = placement.function.maps.values()
        vector = [round(placement.strength * x, digits) for x in m.bias.tolist()]
        Path(path).write_text(json.dumps({"site": placement.site, "vector": vector, "signed": signed}))

    def how_to_load(self, path):
        return f"json.load(open('{path}'))"


class Needy(Plain):
    name, extra = "needy", "heavy"

    def write(self, placement, model, path):
        import not_installed_at_all


class Raising(Plain):
    name = "raising"

    def check(self, placement, model):
        raise KeyError("sites")


class Odd(Plain):
    name = "odd"

    def check(self, placement, model):
        return True


class Unwritten(Plain):
    name = "unwritten"

    def write(self, placement, model, path):
        return path.nothing


plain, needy, raising, odd, partial = Plain(), Needy(), Raising(), Odd(), object()
"""


def test_an_exporter_of_a_plugin_exports(run, installed, saved, model_folder, tmp_path):
    installed("acme_export", EXPORTERS, exporters={"plain": "acme_export:plain", "needy": "acme_export:needy"})
    assert "[folder|lora|gguf|needy|plain]" in run("export", "--help").stdout
    assert "plain" in run("tune", "--help").stdout
    words = ("export", saved, "--model", model_folder, "--to", "plain", "--strength", 0.5)
    result = run(*words, "--option", "digits=1", "--option", "signed=false", "--out", tmp_path / "v.json")
    assert result.exit_code == 0, result.output
    assert f"json.load(open('{tmp_path / 'v.json'}'))" in result.stdout
    written = json.loads((tmp_path / "v.json").read_text())
    assert written == {"site": "layers.1", "vector": [i / 2 for i in range(WIDTH)], "signed": False}
    for options, line in (
        (("digits=many",), "needs a value of the type int"),
        (("width=1",), "plain has digits, sign"),
    ):
        failed = run(*words, "--option", *options, "--out", tmp_path / "no")
        assert failed.exit_code == 2 and line in failed.stderr, failed.output
    again = run(*words, "--out", tmp_path / "v.json")
    assert again.exit_code == 1 and "exists already" in again.stderr
    refused = run(*words, "--site", "final", "--out", tmp_path / "no")
    assert refused.exit_code == 1 and "There is no vector at the end. The nearest target" in refused.stderr
    lacking = run("export", saved, "--model", model_folder, "--to", "needy", "--out", tmp_path / "no")
    assert lacking.exit_code == 1 and "needs not_installed_at_all: pip install 'acme_export[heavy]'" in lacking.stderr


def test_an_exporter_that_breaks_its_protocol_is_named_and_left_out(run, installed, saved, model_folder, tmp_path):
    names = {name: f"acme_odd:{name}" for name in ("raising", "odd", "partial")} | {"unwritten": "acme_odd:Unwritten"}
    installed("acme_odd", EXPORTERS, exporters=names)
    installed("acme_broken", BROKEN, exporters={"broken": "acme_broken:x"})
    installed("acme_thief", BROKEN, exporters={"lora": "acme_thief:x"})
    with pytest.warns(rs.errors.PluginWarning) as caught:
        targets = lm.export_targets(tiny_model("llama"), rs.load(saved))
    assert list(targets) == ["folder", "lora", "gguf", "unwritten"]
    for name, problem in (
        ("raising", "KeyError: 'sites'"),
        ("odd", "returned True"),
        ("partial", "not an object with"),
    ):
        assert sum(f"'{name}'" in str(one.message) and problem in str(one.message) for one in caught) == 1
    for name in ("raising", "odd", "partial", "broken", "unwritten"):
        result = run("export", saved, "--model", model_folder, "--to", name, "--out", tmp_path / "no")
        assert result.exit_code == 1 and "Traceback" not in result.stderr
        assert sum(line.startswith(f"Warning: The plugin '{name}'") for line in result.stderr.splitlines()) == 1
    for name in ("gguf", "lora"):
        result = run("export", saved, "--model", model_folder, "--to", name, "--out", tmp_path / name)
        assert result.exit_code == 0, result.output
        assert result.stderr.count("Warning:") == 1 and "'lora', which is a name of repsurgery" in result.stderr


IMPORTERS = """
import json

import repsurgery as rs


class Plain:
    name = "plain"

    def read(self, path):
        data = json.loads(path.read_text())
        shift = rs.Translation(data["vector"])
        return rs.SteeringFunction({None: shift}), rs.Origin(site=data.get("site"), model="theirs")


class Odd:
    name = "odd"

    def read(self, path):
        return None


plain, odd = Plain(), Odd()
"""


def test_an_importer_of_a_plugin_imports(run, installed, tmp_path):
    installed("acme_import", IMPORTERS, importers={"plain": "acme_import:plain", "odd": "acme_import:odd"})
    assert "repeng|steering-vectors|gguf|safetensors|odd|plain" in run("import", "--help").stdout
    (tmp_path / "v.json").write_text('{"vector": [1.0, 2.0], "site": "layers.3"}')
    result = run("import", tmp_path / "v.json", "--from", "plain", "--out", tmp_path / "s")
    assert result.exit_code == 0, result.output
    function = rs.load(tmp_path / "s")
    assert (function.origin.site, function.origin.model, function.origin.foreign) == ("layers.3", "theirs", True)
    (tmp_path / "v.json").write_text('{"vector": [1.0, 2.0]}')
    assert "--site is missing" in run("import", tmp_path / "v.json", "--from", "plain", "--out", tmp_path / "t").stderr
    words = ("--from", "plain", "--site", "final", "--out", tmp_path / "t")
    assert run("import", tmp_path / "v.json", *words).exit_code == 0
    assert rs.load(tmp_path / "t").origin.site == "final"
    for name in ("odd", "plain"):
        (tmp_path / "v.json").write_text("{}")
        result = run("import", tmp_path / "v.json", "--from", name, "--out", tmp_path / "no")
        assert result.exit_code == 1 and result.stderr.count("Warning:") == 1, result.stderr
        assert f"The plugin '{name}' (repsurgery.importers) of the package acme_import 1.0 is broken" in result.stderr
        assert not (tmp_path / "no").exists()
