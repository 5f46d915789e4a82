"""A plugin package with an estimator, a gate and a scorer works in every command without a change in this package."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import repsurgery as rs
from repsurgery.gates.base import KINDS
from repsurgery.registry import _entry_points
from repsurgery.studies.common.report.drawing import COLOURS, colour_of
from repsurgery.studies.records import read_record
from repsurgery.studies.toxicity import toxicity_toml
from tests.guide import GATE
from tests.plugins import write_plugin
from tests.strategies import make_concept
from tests.studies.toxicity.small import make_files, small_spec

SOURCE = Path(rs.__file__).parents[1]


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Install the package acme, and return the folder that holds it."""
    site = write_plugin(tmp_path / "site")
    monkeypatch.syspath_prepend(str(site))
    _entry_points.cache_clear()
    yield site
    sys.modules.pop("acme", None)
    KINDS.pop("half-space", None)
    _entry_points.cache_clear()


def python(code, *paths):
    """Run code in a new interpreter that finds ``paths`` beside this package."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (SOURCE, *paths)))}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)


def test_fit_and_generate_take_a_plugin(plugin, run, table, model_folder, tmp_path):
    out = tmp_path / "half.safetensors"
    fitted = run(
        *("fit", table, "--text-column", "sentence", "--label-column", "tone", "--model", model_folder),
        *("--method", "half-mean", "--gate", "half-space", "--source", "a", "--target", "b", "--out", out),
    )
    assert fitted.exit_code == 0, fitted.output
    assert "HalfMean states no guarantees" in fitted.stdout
    function = rs.load(out)
    assert type(function.gate).__name__ == "HalfSpace"
    shown = run("generate", out, "--model", model_folder, "--prompt", "w1 w2", "--max-new-tokens", 3)
    assert shown.exit_code == 0, shown.output
    assert "half" in shown.stdout


def test_the_soft_gate_of_the_guide_is_a_plugin_in_one_file(monkeypatch, run, table, model_folder, tmp_path):
    site = write_plugin(tmp_path / "site", "near", GATE, {"repsurgery.gates": {"nearness": "{module}:nearness"}})
    monkeypatch.syspath_prepend(str(site))
    kinds = dict(KINDS)
    KINDS.pop("nearness", None)
    _entry_points.cache_clear()
    out = tmp_path / "near.safetensors"
    try:
        fitted = run(
            *("fit", table, "--text-column", "sentence", "--label-column", "tone", "--model", model_folder),
            *("--method", "mean", "--gate", "nearness", "--source", "a", "--target", "b", "--out", out),
        )
        assert fitted.exit_code == 0, fitted.output
        assert not rs.load(out).gate.hard
        shown = run("generate", out, "--model", model_folder, "--prompt", "w1 w2", "--max-new-tokens", 3)
        assert shown.exit_code == 0, shown.output
        assert "with a mean gate strength of 0." in shown.stdout
        refused = run("export", out, "--model", model_folder, "--to", "folder", "--out", tmp_path / "folded")
        assert refused.exit_code == 1
        assert "asks its nearness gate" in " ".join(refused.output.split())
    finally:
        sys.modules.pop("near", None)
        KINDS.clear()
        KINDS.update(kinds)
        _entry_points.cache_clear()


def test_a_plugin_gate_steers_the_same_on_the_device_and_on_the_host(plugin):
    torch = pytest.importorskip("torch")
    from repsurgery.lm.steer.torch_maps import TorchGate, as_torch_gate

    X, z = make_concept(0)
    gate = rs.build_gate("half-space", X, z)
    on_device = as_torch_gate(gate)
    assert isinstance(on_device, TorchGate)
    codes = gate.codes(X)
    assert 0 < codes.sum() < len(X)
    assert np.array_equal(on_device(torch.from_numpy(X)).numpy(), codes)


def test_guarantees_lists_a_plugin_as_stating_none(plugin, run):
    result = run("guarantees")
    assert result.exit_code == 0, result.output
    lines = [line.split("│") for line in result.stdout.splitlines()]
    rows = {cells[1].strip(): cells for cells in lines if len(cells) > 4}
    assert rows["half-mean"][3].strip() == rows["inherited"][3].strip() == "none stated"
    assert rows["mean"][3].strip() == "means"
    assert (
        "failing" not in rows and "'failing' is left out: fitting it raised RuntimeError: no licence" in result.stderr
    )
    assert rows["inherited"][4:9] == rows["mimic"][4:9]


def test_the_toxicity_study_takes_plugins(plugin, run, tmp_path):
    make_files(tmp_path)
    configurations = ["half-mean selective gate=half-space", "inherited all shrinkage=oas"]
    spec = small_spec(
        tmp_path, configurations=configurations, scorers=["vowels"], neutral=0, wikitext_documents=0, policy_prompts=2
    )
    (tmp_path / "small.toml").write_text(toxicity_toml(spec), encoding="utf-8")
    where = ("--out", tmp_path / "results", "--work-dir", tmp_path / "work", "--data-dir", tmp_path / "data")
    result = run("reproduce", "--spec", tmp_path / "small.toml", *where, "--report", tmp_path / "report")
    assert result.exit_code == 0, result.output
    [path] = (tmp_path / "results").glob("toxicity-*.json")
    record = read_record(path)
    assert [c.name for c in record.configurations] == ["base", *configurations]
    assert {"vowels.expected_max_toxicity"} <= set(record.configurations[1].measures)
    assert "half-mean" in (tmp_path / "report" / "index.html").read_text()


def test_a_fairness_specification_takes_a_plugin(plugin):
    from repsurgery.studies.fairness import make_spec
    from repsurgery.studies.fairness.methods import _estimator

    X, z = make_concept(0)
    spec = make_spec("bios", methods=["half-mean", "inherited-oas"], source="0", target="1")
    gate = rs.build_gate("nearest-mean", X, z.astype(str))
    half = _estimator(spec, "half-mean", gate).fit(X, z.astype(str))
    assert half.steering_(X[z == 0], z[z == 0].astype(str)).mean(0) == pytest.approx(
        X[z == 0].mean(0) / 2 + X[z == 1].mean(0) / 2
    )
    inherited = _estimator(spec, "inherited-oas", gate)
    assert (inherited.shrinkage, inherited.source) == ("oas", "0")


def test_files_say_what_they_need(plugin, tmp_path):
    X, z = make_concept(0)
    from acme import HalfMean

    est = HalfMean(source=0, target=1).fit(X, z)
    rs.save(est, tmp_path / "estimator")
    assert type(rs.load(tmp_path / "estimator")) is HalfMean
    rs.save(est.steering_, tmp_path / "function")
    rs.save(HalfMean(source=0, target=1, gate="half-space").fit(X, z).steering_, tmp_path / "gated")
    assert (rs.load(tmp_path / "gated")(X) == HalfMean(gate="half-space").fit(X, z).transform(X)).all()
    code = f"""
import repsurgery as rs
rs.load({str(tmp_path / "function")!r}).verify()
for name in ("estimator", "gated"):
    try:
        rs.load({str(tmp_path)!r} + "/" + name)
    except rs.errors.FileFormatError as error:
        print(error)
"""
    without, loaded = python(code), python(code, plugin)
    assert (without.returncode, without.stderr) == (loaded.returncode, loaded.stderr) == (0, "")
    assert "'HalfMean' of the module 'acme'" in without.stdout
    assert "kind 'half-space'" in without.stdout and "Install the package" in without.stdout
    assert loaded.stdout == ""


def test_a_broken_plugin_is_named_and_other_commands_run_as_usual(tmp_path):
    site = write_plugin(tmp_path / "site", "acme_broken", "raise ImportError('no driver')")
    rs.ClassMoments.of(*make_concept(0)).save(tmp_path / "moments")
    out = str(tmp_path / "f")
    fit = f"['fit', '--moments', {str(tmp_path / 'moments')!r}, '--target', '1', '--out', {out!r}, '--method'"
    code = "import sys; sys.argv[1:] = {}\nfrom repsurgery.cli import main\nmain()"
    usual, used = (python(code.format(f"{fit}, {name!r}]"), site) for name in ("mimic", "half-mean"))
    assert usual.returncode == 0 and usual.stderr == "", usual.stderr
    assert Path(out).exists()
    assert used.returncode == 2
    assert (
        "Warning: The plugin 'half-mean' (repsurgery.methods) of the package acme_broken 1.0 is broken" in used.stderr
    )
    assert "ImportError: no driver" in used.stderr and "Traceback" not in used.stderr


def test_colours_of_methods_are_stable():
    assert colour_of("mimic") == COLOURS["mimic"]
    assert colour_of("half-mean") == colour_of("half-mean") != colour_of("inherited")
