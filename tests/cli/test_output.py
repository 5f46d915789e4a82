"""The form of what commands say: one JSON document on stdout, nothing but the result with --quiet, and exit codes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest

import repsurgery as rs
from repsurgery.cli.output import Form, say, speaking, step, write_document
from tests.cli.test_endings import ROOT, on_a_terminal, start
from tests.scale.written import rows, write_npy
from tests.strategies import make_concept


@pytest.fixture
def files(tmp_path):
    """Return small files of a map, a steering, moments and shards."""
    X, z = make_concept(0, d=3)
    rs.save(rs.MiMiC().fit(X, z).steering_, tmp_path / "f.safetensors")
    rs.ClassMoments.of(X, z).save(tmp_path / "m")
    rs.ClassMoments.of(X + 1, z).save(tmp_path / "n")
    write_npy(tmp_path, rows(n=40, cuts=(20,)))
    return tmp_path


def small_commands(files):
    """Commands that are quick, each with a key of its document."""
    records = ROOT / "experiments" / "results"
    one = sorted(records.glob("*.json"))[0]
    return {
        "inspect": (("inspect", files / "f.safetensors"), "kind"),
        "merge": (("merge", files / "m", files / "n", "--out", files / "sum"), "counts"),
        "moments": (
            ("moments", f"{files}/x*.npy", "--labels", f"{files}/z*.npy", "--out", files / "o", "--workers", "1"),
            "shards",
        ),
        "fit": (("fit", "--moments", files / "m", "--target", "1", "--out", files / "g"), "certificate"),
        "plan": (("plan", "--rows", "1e6", "--width", "8"), "plans"),
        "report": (("report", one, "--out", files / "page"), "report"),
        "rivals": (("rivals", "list", "dexperts"), "rivals"),
    }


NAMES = ("inspect", "merge", "moments", "fit", "plan", "report", "rivals")


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("name", NAMES)
def test_a_result_is_one_document(run, files, name, place):
    words, key = small_commands(files)[name]
    result = run("--json", *words) if place == "before" else run(*words, "--json")
    assert result.exit_code == 0, result.stderr
    assert key in json.loads(result.stdout)
    assert result.stderr == ""


@pytest.mark.parametrize("name", NAMES)
def test_without_json_the_result_is_for_people(run, files, name):
    words, _ = small_commands(files)[name]
    result = run(*words, "--quiet")
    assert result.stdout.strip() and result.stderr == ""
    with pytest.raises(json.JSONDecodeError):
        json.loads(result.stdout)


def test_commands_on_models_return_documents(run, table, model_folder, tmp_path):
    out = tmp_path / "f.safetensors"
    columns = ("--text-column", "sentence", "--label-column", "tone", "--target", "b", "--gate", "always")
    fitted = json.loads(run("fit", table, *columns, "--model", model_folder, "--out", out, "--json").stdout)
    assert fitted["file"] == str(out) and fitted["held_out"]["verdict"] and fitted["origin"]["site"] == "final"
    assert fitted["certificate"] == json.loads(run("inspect", out, "--json").stdout)["certificate"]
    words = ("generate", out, "--model", model_folder, "--prompt", "w1 w2", "-n", "2", "--json")
    written = json.loads(run(*words).stdout)
    assert [row["sample"] for row in written["texts"]] == [0, 1]
    assert all(len(row["steered"]) == 1 for row in written["texts"]) and written["steerings"][0]["steps"] > 0
    folder = tmp_path / "folded"
    words = ("export", out, "--to", "folder", "--model", model_folder, "--out", folder, "--custom-code", "--json")
    exported = json.loads(run(*words).stdout)
    assert exported["path"] == str(folder) and exported["exact"] is True
    memory = json.loads(run("plan", "--model", model_folder, "--json").stdout)
    assert memory["total"] > memory["weights"] > 0


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        (("inspect", "absent"), "FileFormatError", 1),
        (("plan", "--rows", "0", "--width", "4"), "ParameterError", 1),
        (("fit", "--moments", "m", "--out", "none/f"), "OutputError", 1),
        (("fit", "--layer", "3"), "UsageError", 2),
        (("plan", "--rows", "1", "--rows", "2"), "UsageError", 2),
        (("magic",), "UsageError", 2),
        (("fit",), "UsageError", 2),
    ],
)
def test_every_failure_is_one_document(run, words, kind, code):
    for result in (run("--json", *words), run(*words, "--json")):
        assert result.exit_code == code
        error = json.loads(result.stdout)["error"]
        assert (error["kind"], error["exit_code"]) == (kind, code) or kind == "FileFormatError"
        assert error["message"] in " ".join(result.stderr.replace("│", " ").split())


def test_a_document_holds_neither_nan_nor_objects(capsys):
    write_document({"a": np.float32(1), "b": [np.nan, np.inf], "c": Path("x"), "d": np.arange(2), 3: Form()})
    document = {"a": 1.0, "b": [None, None], "c": "x", "d": [0, 1], "3": {"json": False, "quiet": False}}
    assert json.loads(capsys.readouterr().out) == document


@pytest.mark.parametrize(
    ("form", "out", "err"),
    [
        (Form(), "step\nresult\n", ""),
        (Form(quiet=True), "result\n", ""),
        (Form(json=True), "", "step\n"),
        (Form(json=True, quiet=True), "", ""),
    ],
)
def test_steps_and_results_go_where_they_belong(capsys, form, out, err):
    with speaking(form):
        step("step")
        say("result")
    assert capsys.readouterr() == (out, err)


def test_a_server_says_where_it_listens_as_soon_as_it_does(model_folder):
    pytest.importorskip("uvicorn", reason="a server needs the extra repsurgery[serve]")
    process = start("serve", "--model", model_folder, "--port", "0", "--json", "--quiet")
    document = ""
    while not document.endswith("}\n"):
        document += process.stdout.readline()
    with pytest.raises(HTTPError, match="404"):  # an answer: the server has begun, and hears signals
        urlopen(f"{json.loads(document)['url']}/nothing", timeout=120)
    process.terminate()
    rest, said = process.communicate(timeout=120)
    assert (process.returncode, rest, said) == (0, "", "")


def command(*words, cwd, **options):
    return subprocess.run(
        [sys.executable, "-m", "repsurgery", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **options},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def test_progress_is_shown_on_a_terminal_and_neither_in_a_pipe_nor_with_quiet(table, model_folder, tmp_path):
    words = ("fit", str(table), "--text-column", "sentence", "--label-column", "tone", "--target", "b")
    words = (*words, "--model", str(model_folder), "--out", "f")
    assert "reading final: 100%" in on_a_terminal(*words, cwd=tmp_path)
    assert "%|" not in on_a_terminal(*words, "--quiet", cwd=tmp_path)
    assert command(*words, cwd=tmp_path).stderr == ""


@pytest.mark.parametrize("words", [("--help",), ("fit", "--help"), ("guarantees",), ("inspect", "f.safetensors")])
def test_a_narrow_terminal_loses_no_word(files, words):
    narrow = command(*words, cwd=files, COLUMNS="60", TERMINAL_WIDTH="60").stdout
    assert max(map(len, narrow.splitlines())) <= 60
    assert not re.search("(?<![0-9a-f]{8})…", narrow)  # which follows a digest
    if words == ("guarantees",):
        shown = " ".join(narrow.replace("│", " ").replace("┃", " ").split())
        assert all(word in shown for word in ("MiMiC", "BarycenterErasure", "Youden", "supported"))


def test_no_color_is_heard(files):
    os.environ.pop("NO_COLOR", None)
    plain = on_a_terminal("inspect", "absent", cwd=files, NO_COLOR="1")
    assert "\x1b[31m" not in plain and "\x1b[1;31m" not in plain and "Error:" in plain
    assert "\x1b[1;31m" in on_a_terminal("inspect", "absent", cwd=files)


@pytest.mark.parametrize("words", ["--help", "guarantees", "--json doctor", "fit --help"])
def test_a_reader_that_takes_one_line_is_enough(files, words):
    shell = f"{sys.executable} -m repsurgery {words} | head -1"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        ["bash", "-c", shell], env=environment, cwd=files, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "") and len(done.stdout.splitlines()) == 1
