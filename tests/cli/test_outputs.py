"""No command overwrites what it reads, and a place that cannot be written is told before any work."""

import os

import pytest

import repsurgery as rs
from tests.strategies import make_concept


@pytest.fixture
def moments(tmp_path):
    rs.ClassMoments.of(*make_concept(0)).save(tmp_path / "m")
    return tmp_path / "m"


def linked(path):
    os.link(path, path.with_name("hard"))
    return path.with_name("hard")


def symbolic(path):
    path.with_name("soft").symlink_to(path)
    return path.with_name("soft")


@pytest.mark.parametrize("name", [lambda path: path, linked, symbolic], ids=["same", "hard link", "link"])
def test_fit_and_merge_keep_what_they_read(run, table, moments, tmp_path, name):
    rs.ClassMoments.of(*make_concept(1)).save(tmp_path / "n")
    before = table.read_bytes(), moments.read_bytes()
    text, sums = name(table), None
    for words in (
        ("fit", table, "--text-column", "sentence", "--label-column", "tone", "--target", "b", "--out", text),
        ("fit", "--moments", moments, "--target", "1", "--out", sums or moments),
        ("merge", moments, tmp_path / "n", "--out", moments),
    ):
        result = run(*words)
        assert result.exit_code == 1, result.output
        assert "would be overwritten. Give another name." in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
    assert (table.read_bytes(), moments.read_bytes()) == before


def test_fit_keeps_the_weights_of_its_model(run, table, model_folder):
    weights = model_folder / "model.safetensors"
    before = weights.read_bytes()
    result = run("fit", table, "--target", "b", "--model", model_folder, "--out", weights)
    assert result.exit_code == 1 and "would be overwritten" in result.stderr
    assert weights.read_bytes() == before


@pytest.mark.parametrize("out", ["none/f", "folder", "texts.csv/f"])
def test_a_wrong_output_is_told_before_texts_are_read(run, tmp_path, out):
    (tmp_path / "folder").mkdir()
    (tmp_path / "texts.csv").write_text("not even a table")
    for words in (("fit", tmp_path / "texts.csv"), ("fit", "--moments", tmp_path / "absent"), ("merge", "a", "b")):
        result = run(*words, "--out", tmp_path / out)
        assert result.exit_code == 1
        assert "There is no folder" in result.stderr or "is a folder" in result.stderr


def test_folders_are_checked_before_the_work(run, tmp_path):
    (tmp_path / "file").write_text("")
    for words in (
        ("demo", "--model", "no-such-model"),
        ("fold", tmp_path / "absent"),
        ("report", tmp_path / "absent"),
        ("reproduce", "bios", "--data", tmp_path / "absent.csv"),
    ):
        result = run(*words, "--out", tmp_path / "file" / "inside")
        assert result.exit_code == 1, result.output
        assert "cannot be used as a folder" in result.output


def test_a_report_keeps_its_records(run, tmp_path):
    (tmp_path / "report.md").write_text("a record by an odd name")
    result = run("report", tmp_path / "report.md", "--out", tmp_path)
    assert result.exit_code == 1 and "would be overwritten" in result.output
    assert (tmp_path / "report.md").read_text() == "a record by an odd name"


def test_a_work_folder_keeps_the_shards_in_it(run, tmp_path, monkeypatch):
    import numpy as np

    monkeypatch.chdir(tmp_path)
    (tmp_path / "sums-1").mkdir()
    np.save("sums-1/x.npy", np.zeros((4, 2)))
    np.save("sums-1/z.npy", np.arange(4) % 2)
    result = run("moments", "sums-1/x.npy", "--labels", "sums-1/z.npy", "--work-dir", ".", "--out", "m")
    assert result.exit_code == 1 and "holds the input" in result.stderr


def test_the_harness_is_asked_for_its_folder_first(run, tmp_path):
    pytest.importorskip("lm_eval", reason="the harness needs the extra repsurgery[evaluation]")
    (tmp_path / "file").write_text("")
    for words in (("--output_path", tmp_path / "file" / "x"), (f"--output_path={tmp_path / 'file' / 'a.json'}",)):
        result = run("lm-eval", "run", "--model", "repsurgery", "--tasks", "none", *words)
        assert result.exit_code == 1 and "cannot be used as a folder" in result.output
