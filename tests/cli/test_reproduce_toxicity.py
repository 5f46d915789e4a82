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
    result = reproduce("--set", "prompt_toxicity=0.3")
    assert result.exit_code == 1 and "--set prompt_toxicity=0" in result.output


def test_own_columns_labels_and_prompts_need_no_option(run, tmp_path):
    """A newcomer's files: other column names, labels 0 and 1, a hole, prompts line by line."""
    make_files(tmp_path)
    rows = (tmp_path / "texts.csv").read_text().splitlines()[1:]
    lines = [f"{i},{text},{int(label == 'toxic')}" for i, (text, label) in enumerate(r.split(",") for r in rows)]
    (tmp_path / "mine.csv").write_text("\n".join(["id,comment,is_bad", *lines, "80,,1"]) + "\n")
    (tmp_path / "prompts.txt").write_text("".join(f"w{i} w1\n" for i in range(8)))
    model = ("--model", tmp_path / "model", "--set", f"fluency={tmp_path / 'model'}", "--set", 'scorers=["linear"]')
    quick = [
        word
        for pair in ("samples=2", "tokens=3", "resamples=20", "cost_rounds=0", "max_length=16")
        for word in ("--set", pair)
    ]
    where = ("--out", tmp_path / "results", "--work-dir", tmp_path / "work", "--data-dir", tmp_path / "nothing")
    asked = ("--data", tmp_path / "mine.csv", "--set", f"prompts={tmp_path / 'prompts.txt'}")
    result = run("reproduce", "toxicity", *asked, *model, *quick, *where)
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "Chosen to suit the data: text=comment" in said and "source=1, target=0" in said
    assert "fit_rows=32, held_out=8" in said and "prompt_count=8" in said and "wikitext_documents=0" in said
    [path] = (tmp_path / "results").glob("toxicity-*.json")
    record = read_record(path)
    assert record.data["counts"] == {"0": 40, "1": 40} and "1 of 81 rows lacks" in record.data["cautions"][0]
    stated = load_toxicity_spec(path.with_suffix(".toml"))
    assert (stated.text, stated.fit_rows, stated.prompt_count, stated.wikitext_documents) == ("comment", 32, 8, 0)
    again = run("reproduce", "--spec", path.with_suffix(".toml"), "--model", tmp_path / "model", *where)
    assert again.exit_code == 0 and "Chosen to suit" not in again.output
    assert len([*(tmp_path / "results").glob("toxicity-*.json")]) == 2  # the notes differ, the figures do not
    others = [read_record(other) for other in (tmp_path / "results").glob("toxicity-*.json")]
    assert others[0].configurations == others[1].configurations
