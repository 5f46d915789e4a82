"""``repsurgery reproduce toxicity``: labelled texts and prompts in, a record, a specification and a report out."""

import json

import pytest

from repsurgery.studies.records import read_record
from repsurgery.studies.toxicity import load_toxicity_spec, toxicity_toml
from tests.studies.toxicity.small import make_files, small_spec


@pytest.fixture
def reproduce(run, tmp_path):
    make_files(tmp_path)
    (tmp_path / "small.toml").write_text(
        toxicity_toml(small_spec(tmp_path, configurations=["mean selective", "mean all"])), encoding="utf-8"
    )

    def call(*words):
        where = ("--out", tmp_path / "results", "--work-dir", tmp_path / "work", "--data-dir", tmp_path / "data")
        return run("reproduce", "--spec", tmp_path / "small.toml", *where, *words)

    return call


def test_a_study_leaves_a_record_its_specification_and_a_report(reproduce, run, tmp_path):
    result = reproduce("--report", tmp_path / "report")
    assert result.exit_code == 0, result.output
    [path] = (tmp_path / "results").glob("toxicity-*.json")
    record = read_record(path)
    assert [c.name for c in record.configurations] == ["base", "mean selective", "mean all"]
    assert "mean selective" in result.output
    assert load_toxicity_spec(path.with_suffix(".toml")).samples == 3
    page = (tmp_path / "report" / "index.html").read_text()
    assert "offensive" in page and page.count("<table") > 3
    shown = run("report", path, "--out", tmp_path / "again")
    assert shown.exit_code == 0, shown.output
    assert (tmp_path / "again" / "index.html").read_text() == page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "samples=0"], "samples is 0"),
        (["--set", "volume=3"], "no option 'volume'"),
        (["--set", 'configurations=["mean sometimes"]'], "choose one of selective"),
        (["--set", 'scorers=["oracle"]'], "no scorer 'oracle'"),
        (["--set", "prompts=missing.jsonl"], "missing.jsonl"),
        (["--set", "data=missing.csv"], "missing.csv"),
        (["--set", "model=./missing/model"], "missing/model"),
        (["--encoder", "minilm"], "no option 'encoder'"),
        (["--preset", "released"], "no preset 'released'"),
    ],
)
def test_mistakes_are_one_line(reproduce, words, said):
    result = reproduce(*words)
    assert result.exit_code == 1
    assert said in result.output and "Traceback" not in result.output


def test_prompts_without_scores_say_what_to_do(reproduce, tmp_path):
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps({"prompt": f"w{i} w1"}) + "\n" for i in range(20)))
    result = reproduce()
    assert result.exit_code == 1 and "prompt_toxicity=0" in result.output
    assert reproduce("--set", "prompt_toxicity=0", "--set", "policy_prompts=5").exit_code == 0
