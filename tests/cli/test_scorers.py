import json

from tests.datasets.real import real_folder


def test_scorers_are_compared_and_recorded(run, tmp_path):
    real_folder("realtoxicityprompts_quark_val", "jigsaw_balanced_12k")
    result = run("compare-scorers", "linear", "--out", tmp_path / "agreement.json")
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "agreement.json").read_text())
    assert record["rows"]["texts"] == 4383
    assert f"{record['scorers']['linear']['auc']:.3f}" in result.stdout
    assert not record["pairs"]


def test_a_place_that_cannot_be_written_is_reported_before_any_work(run, tmp_path):
    for command in ("train-scorer", "compare-scorers"):
        result = run(command, "--out", tmp_path / "absent" / "file", "--data-dir", tmp_path)
        assert result.exit_code == 1
        assert "Create it first" in result.stderr


def test_training_without_enough_comments_says_how_many_are_needed(run, tmp_path):
    (tmp_path / "jigsaw").mkdir()
    (tmp_path / "jigsaw" / "test.csv").write_text("a comment,0\nanother comment,1\n")
    result = run("train-scorer", "--out", tmp_path / "mine.safetensors", "--data-dir", tmp_path)
    assert result.exit_code == 1
    assert "has 1 texts labelled 'toxic'; 4000 to fit and 500 to hold out are needed" in result.stderr
    assert not (tmp_path / "mine.safetensors").exists()
