"""How commands end when somebody stops them or stops reading, and what reaches the terminal: real processes."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import repsurgery as rs
from repsurgery.cli.terminal import plain
from repsurgery.studies.toxicity import toxicity_toml
from tests.scale.written import rows, write_npy
from tests.strategies import make_concept
from tests.studies.toxicity.small import make_files, small_spec

ROOT = Path(__file__).parents[2]
# a shell's background jobs do not hear Ctrl-C, and what they start neither
COMMAND = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\nfrom repsurgery.cli import main\nmain()"
)


def start(*words, **options):
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


def loaded(process, library):
    """Wait until the process has a library in its memory; the rest of its imports follows."""
    return until(process, lambda: library in Path(f"/proc/{process.pid}/maps").read_text())


def has_children(process):
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return until(process, lambda: len(children.read_text().split()) > 1)


def says(word):
    return lambda process: until(process, lambda: word in process.stdout.readline())


def until(process, happened):
    while not happened():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def interrupt(process):
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=120)[1]
    return process.returncode, said


@pytest.fixture
def shards(tmp_path):
    write_npy(tmp_path, rows(n=4000, cuts=tuple(range(100, 4000, 100))))
    return (f"{tmp_path}/x*.npy", "--labels", f"{tmp_path}/z*.npy", "--workers", 2, "--out", tmp_path / "m")


@pytest.mark.parametrize("library", ["_multiarray_umath", "libscipy_openblas", "libtorch_cpu", "libtorch_python"])
def test_ctrl_c_is_one_line_and_130(library, table, model_folder, tmp_path):
    process = start(
        *("fit", table, "--text-column", "sentence", "--label-column", "tone", "--target", "b"),
        *("--model", model_folder, "--out", tmp_path / "f"),
    )
    loaded(process, library)
    assert interrupt(process) == (130, "Stopped.\n")


def test_ctrl_c_while_workers_import_says_how_to_go_on(shards):
    process = start("moments", *shards)
    has_children(process)
    assert interrupt(process) == (130, "moments stopped; run again to resume.\n")


@pytest.mark.parametrize("moment", ["texts", "writing", "judging"])
def test_ctrl_c_in_a_study_says_how_to_go_on(moment, tmp_path):
    make_files(tmp_path)
    spec = small_spec(tmp_path, configurations=["mean selective", "mean all"])
    (tmp_path / "small.toml").write_text(toxicity_toml(spec), encoding="utf-8")
    where = ("--out", tmp_path / "results", "--work-dir", tmp_path / "work", "--data-dir", tmp_path / "data")
    process = start("reproduce", "--spec", tmp_path / "small.toml", *where)
    says(moment)(process)
    code, said = interrupt(process)
    assert code == 130, said
    assert "Traceback" not in said
    assert said.rstrip().endswith("reproduce stopped; run again to resume.")


@pytest.mark.parametrize("words", [("guarantees",), ("inspect", "f", "--json"), ("inspect", "f"), ("--help",)])
def test_a_closed_pipe_ends_without_a_word(words, tmp_path):
    X, z = make_concept(0, d=3)
    rs.save(rs.MiMiC().fit(X, z).steering_, tmp_path / "f")
    process = start(*words, cwd=tmp_path)
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == ""
    process.wait()


HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x9b2J\u202egnp\u2028\u2029\u200b\ufeff"


def on_a_terminal(*words, cwd, **variables):
    """Return what a command writes to a terminal, bytes and all."""
    master, slave = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "300", "TERM": "xterm", **variables}
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words], stdout=slave, stderr=slave, stdin=slave, env=env, cwd=cwd
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(master)
    process.wait()
    return shown.decode()


@pytest.mark.parametrize(
    "words", [("inspect", "f"), ("inspect", "f", "--json"), ("fit", "--moments", "m"), ("merge", "m", "n")]
)
def test_no_command_lets_a_label_steer_the_terminal(words, tmp_path):
    X, z = make_concept(0, d=3)
    labels = np.where(z, "kind", HOSTILE)
    rs.save(rs.MiMiC(target="kind").fit(X, labels).steering_, tmp_path / "f")
    rs.ClassMoments.of(X, labels).save(tmp_path / "m")
    rs.ClassMoments.of(X + 1, labels).save(tmp_path / "n")
    if words[0] != "inspect":
        words = (*words, *(("--target", "kind") if words[0] == "fit" else ()), "--out", HOSTILE)
    shown = on_a_terminal(*words, cwd=tmp_path)
    assert "owned" in shown, shown
    for control in ("\x1b]", "\x07", "\x1b[31mred", "\x9b", "\u202e", "\u2028", "\u2029", "\u200b", "\ufeff"):
        assert control not in shown


def test_errors_and_warnings_are_printable_too(tmp_path):
    shown = on_a_terminal("inspect", HOSTILE, cwd=tmp_path)
    assert "owned" in shown and "\x1b]" not in shown and "\x9b" not in shown


def test_only_control_characters_are_spelled_out():
    assert plain("Grüße 🙂 日本\n\tend") == "Grüße 🙂 日本\n\tend"
    assert plain("a\u2028b\u2029c\u200bd\xade\U000e0041") == "a\\u2028b\\u2029c\\u200bd\\xade\\U000e0041"
    assert plain("a\x1b[0m\r\x7f\x85\ud800") == "a\\x1b[0m\\r\\x7f\\x85\\ud800"
