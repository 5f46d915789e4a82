"""What a newcomer may get wrong: each is one clear message, before any work."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import repsurgery as rs
from tests.cli.processes import process
from tests.cli.test_endings import ROOT
from tests.lm.tiny_models import WIDTH, WORDS


@pytest.fixture
def without_weights(model_folder, tmp_path):
    """Return a model folder that holds everything but the weights: whoever reads them fails."""
    shutil.copytree(model_folder, tmp_path / "hollow")
    (tmp_path / "hollow" / "model.safetensors").unlink()
    return tmp_path / "hollow"


@pytest.fixture
def narrow(tmp_path):
    """Return a steering of fewer features than the model has."""
    rs.save(rs.Translation(np.ones(WIDTH - 1)), tmp_path / "narrow.safetensors")
    return tmp_path / "narrow.safetensors"


def one_line(result):
    assert result.exit_code == 1, result.output
    (line,) = result.stderr.splitlines()
    return line


def test_site_and_width_are_told_before_weights_are_read(run, table, without_weights, narrow, tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("w1 w2\n")
    place = ("--model", without_weights)
    fit = ("fit", table, "--text-column", "sentence", "--label-column", "tone", "--target", "b")
    wrong_site = (
        (*fit, "--site", "layers.9", "--out", tmp_path / "f"),
        (
            "fit",
            "--on-policy",
            "--prompts",
            prompts,
            "--scorer",
            "linear",
            "--site",
            "layers.9",
            "--out",
            tmp_path / "f",
        ),
        ("export", narrow, "--to", "folder", "--site", "layers.9", "--out", tmp_path / "e"),
        ("fold", narrow, "--site", "layers.9", "--out", tmp_path / "e"),
        ("generate", narrow, "--prompt", "w1", "--site", "layers.9"),
        ("tune", "--scorer", "linear", "--prompts", "provoking", "--site", "layers.9", "--out", tmp_path / "t"),
    )
    for words in wrong_site:
        assert "There is no 'layers.9': this llama has 2 blocks" in one_line(run(*words, *place, "--quiet"))
    for words in (*wrong_site[2:5],):
        told = one_line(run(*(word for word in words if word not in ("--site", "layers.9")), *place, "--quiet"))
        assert f"has {WIDTH - 1} features; LlamaForCausalLM has {WIDTH} there" in told
    assert "cannot be loaded" in one_line(run(*fit, *place, "--out", tmp_path / "f")), "the weights are really missing"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="a folder in which not even the superuser may write")
def test_a_folder_that_cannot_be_written_is_told_first(run, table, tmp_path):
    for words in (
        ("fit", tmp_path / "absent.csv", "--target", "b"),
        ("merge", "a", "b"),
        ("moments", "absent*.npy"),
        ("tune", "courtesy"),
        ("train-scorer",),
        ("compare-scorers",),
        ("export", "absent", "--to", "gguf"),
    ):
        assert "The folder /proc is not writable" in one_line(run(*words, "--out", "/proc/f"))
    for words in (("demo",), ("report", "absent"), ("fold", "absent"), ("reproduce", "bios")):
        assert "The folder /proc is not writable" in one_line(run(*words, "--out", "/proc/folder"))


def test_a_table_of_excel_is_read_and_what_was_assumed_is_said(run, model_folder, tmp_path):
    lines = [f"{WORDS[i % 7]} é {WORDS[20 * (i % 2) + i % 5]};{['sehr höflich', ' grob '][i % 2]}" for i in range(20)]
    (tmp_path / "t.csv").write_bytes("\r\n".join(["Satz;Ton", *lines]).encode("cp1252"))
    result = run(
        *("fit", tmp_path / "t.csv", "--text-column", "Satz", "--label-column", "Ton", "--model", model_folder),
        *("--source", "grob", "--target", "sehr höflich", "--out", tmp_path / "f", "--quiet"),
    )
    assert result.exit_code == 0, result.output
    (warning,) = (line for line in result.stderr.splitlines() if "t.csv" in line)
    assert warning.startswith("Warning: ") and "in Windows-1252 and separated by semicolons" in warning
    assert "grob → sehr" in result.stdout


@pytest.mark.parametrize("offline", ["0", "1"])
def test_an_unreachable_hub_is_one_message(table, tmp_path, offline):
    columns = ("--text-column", "sentence", "--label-column", "tone", "--target", "b")
    words = ("fit", table, *columns, "--model", "owner/name", "--out", tmp_path / "f")
    # a name that never resolves
    done = process(*words, HF_HUB_OFFLINE=offline, HF_ENDPOINT="https://hub.invalid", HF_HOME=str(tmp_path))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: 'owner/name' cannot be loaded")
    assert "pass the folder of a downloaded model or an embedded name: 'smollm2-135m'" in line


MODELS = ("torch", "transformers", "platformdirs", "psutil", "filelock", "accelerate")


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("fit", "t.csv", "--target", "b", "--out", "f"), "lm"),
        (("generate", "f", "--prompt", "a"), "lm"),
        (("export", "f", "--to", "folder", "--out", "e"), "lm"),
        (("plan", "--model", "m"), "lm"),
        (("rivals", "list"), "lm"),
        (("lm-eval", "run"), "evaluation"),
        (("serve",), "serve"),
    ],
)
def test_without_its_extra_a_command_says_what_to_install(words, extra, tmp_path):
    done = process(*words, hidden=(*MODELS, "lm_eval", "uvicorn", "fastapi"))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"pip install 'repsurgery[{extra}]'")


def test_the_exit_codes_are_those_of_the_guide(run):
    guide = (ROOT / "docs" / "guide" / "command-line.md").read_text()
    documented = {int(row.split("|")[1]) for row in guide.splitlines() if row.startswith("| ") and row[2].isdigit()}
    assert documented == {0, 1, 2, 130}  # the last one in test_ctrl_c_is_one_line_and_130
    assert run("plan", "--rows", "1e6", "--width", "8").exit_code == 0
    assert run("plan", "--rows", "0", "--width", "8").exit_code == 1
    assert run("plan", "--rows", "many").exit_code == 2
