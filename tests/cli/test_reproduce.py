"""The commands of the studies: a table in, a record, a specification and a report out."""

import json

import pytest

from repsurgery.studies.fairness import load_spec
from repsurgery.studies.records import read_record
from tests.lm.tiny_models import WORDS

OPTIONS = {
    "label": "topic",
    "concept": "tone",
    "source": "b",
    "target": "a",
    "methods": '["mean"]',
    "neighbour_counts": "[1]",
    "cosine_rows": "5",
    "probe_rows": "0",
    "resamples": "20",
    "max_length": "32",
}


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.csv"
    lines = ["text,topic,tone"]
    for i in range(80):
        topic, tone = i // 2 % 2, i % 2
        words = WORDS[i % 7], WORDS[10 * topic + i % 11], WORDS[20 * tone + i % 5]
        lines.append(f"{' '.join(words)},{'xy'[topic]},{'ab'[tone]}")
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def reproduce(run, texts, model_folder, tmp_path):
    def call(*words, **changes):
        options = [f"--set={name}={value}" for name, value in {**OPTIONS, **changes}.items()]
        where = ("--out", tmp_path / "results", "--work-dir", tmp_path / "work")
        return run("reproduce", *words, "--data", texts, "--encoder", model_folder, *where, *options)

    return call


def test_a_study_leaves_a_record_its_specification_and_a_report(reproduce, run, tmp_path):
    result = reproduce("bios", "--report", tmp_path / "report")
    assert result.exit_code == 0, result.output
    [path] = (tmp_path / "results").glob("*.json")
    record = read_record(path)
    assert f"{record.settings[0].methods[0].measures['test.accuracy'].value:.3f}".lstrip("0") in result.output
    spec = load_spec(path.with_suffix(".toml"))
    assert spec.methods == ("base", "mean") and spec.source == "b"
    assert (tmp_path / "report" / "index.html").read_text().count("<table") > 3
    # the specification alone repeats the study, from what was kept
    where = ("--out", tmp_path / "again", "--work-dir", tmp_path / "work")
    again = run("reproduce", "--spec", path.with_suffix(".toml"), *where, "--json")
    assert again.exit_code == 0, again.output
    [other] = (tmp_path / "again").glob("*.json")
    document = json.loads(again.stdout)
    assert document["record"] == str(other) and document["report"] is None
    assert document["tables"][0]["rows"] and "data:" in again.stderr
    assert read_record(other).settings == record.settings


def test_records_become_a_report(reproduce, run, tmp_path):
    reproduce("bios")
    result = run("report", tmp_path / "results", "--out", tmp_path / "pages")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "pages" / "report.md").read_text().startswith("#")


@pytest.mark.parametrize(
    ("words", "changes", "said", "code"),
    [
        (("bios",), {"colour": "red"}, "no option 'colour'", 1),
        (("bios",), {"early_stopping": "perhaps"}, "early_stopping is 'perhaps'", 1),
        (("bios",), {"concept": "mood"}, "no column 'mood'", 1),
        ((), {}, "No study was named", 2),
        (("bios", "--set", "seed"), {}, "it needs name=value", 1),
        (("bios", "--spec", "nowhere.toml"), {}, "There is no file nowhere.toml", 1),
    ],
)
def test_mistakes_are_one_line(reproduce, words, changes, said, code):
    result = reproduce(*words, **changes)
    assert result.exit_code == code
    assert said in result.output and "Traceback" not in result.output


def test_a_file_of_an_unknown_study_is_refused(run, tmp_path):
    (tmp_path / "run.toml").write_text('experiment = "weather"')
    result = run("reproduce", "--spec", tmp_path / "run.toml")
    assert result.exit_code == 1 and "one of bios, dialect, toxicity" in " ".join(result.output.split())


def test_the_same_study_twice_is_one_record(reproduce, tmp_path):
    reproduce("bios")
    reproduce("bios")
    assert len(list((tmp_path / "results").glob("*.json"))) == 1


def test_concepts_that_look_like_numbers_are_words(run, texts, model_folder, tmp_path):
    table = tmp_path / "numbers.csv"
    table.write_text(texts.read_text().replace(",a\n", ",0\n").replace(",b\n", ",1\n").replace(",b", ",1"))
    options = [f"--set={name}={value}" for name, value in {**OPTIONS, "source": 1, "target": 0}.items()]
    where = ("--out", tmp_path / "o", "--work-dir", tmp_path / "w")
    result = run("reproduce", "bios", "--data", table, "--encoder", model_folder, *where, *options)
    assert result.exit_code == 0, result.output


def test_a_folder_that_cannot_be_written_is_named_before_the_study(run, texts, tmp_path):
    (tmp_path / "file").write_text("")
    for option in ("--out", "--report", "--work-dir"):
        result = run("reproduce", "bios", "--data", texts, option, tmp_path / "file")
        assert result.exit_code == 1 and "cannot be used as a folder" in result.output
        assert "data:" not in result.output


def test_a_record_of_another_layout_is_refused(reproduce, run, tmp_path):
    reproduce("bios")
    [path] = (tmp_path / "results").glob("*.json")
    held = json.loads(path.read_text())
    path.write_text(json.dumps({**held, "schema": 99}))
    result = run("report", path, "--out", tmp_path / "pages")
    assert result.exit_code == 1 and "layout 99" in result.output
    assert not (tmp_path / "pages").exists()
