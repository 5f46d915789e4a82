"""``repsurgery rivals``: what there is, and parts that a later study uses."""

import numpy as np
import pytest

from repsurgery.cli import INTERRUPTED
from repsurgery.files import read_file
from repsurgery.studies.records import read_record
from repsurgery.studies.toxicity import toxicity_toml
from repsurgery.studies.toxicity.decoding import training
from repsurgery.studies.toxicity.decoding.parts import KIND
from repsurgery.studies.toxicity.generators import GENERATORS
from repsurgery.studies.toxicity.rivals import dexperts
from tests.cli.words import instead
from tests.studies.toxicity.small import make_files, small_spec

pytest.importorskip("peft", reason="adapters need the extra repsurgery[rivals]")
LINE = "dexperts tokens=128"


@pytest.fixture
def files(tmp_path):
    make_files(tmp_path)
    spec = small_spec(tmp_path, configurations=[f"{LINE} alpha=1", "self-debias"])
    (tmp_path / "small.toml").write_text(toxicity_toml(spec), encoding="utf-8")
    return tmp_path


@pytest.fixture
def train(run, files):
    def call(*words, spec=True, work="work"):
        source = ("--spec", files / "small.toml") if spec else ()
        return run("rivals", "train", *words, *source, "--data-dir", files / "data", "--work-dir", files / work)

    return call


def parts(folder):
    """Return the arrays of every part in a work folder."""
    paths = sorted((folder / "rivals").glob("*.safetensors"))
    return {path.name: read_file(path, kind=KIND).arrays for path in paths}


def same(one, other):
    return one.keys() == other.keys() and all(
        np.array_equal(one[file][name], other[file][name]) for file in one for name in one[file]
    )


def test_the_list_names_every_rival_with_its_options_and_needs(run):
    shown = run("rivals", "list").stdout
    for name, one in GENERATORS.own().items():
        line = next(line for line in shown.splitlines() if line.split()[0] == name)
        assert line.split()[1:] == [f"{option}={value}" for option, value in one.options.items()]
        assert f"Needs {one.needs}." in shown if getattr(one, "needs", "") else True
    assert "Needs labelled texts; two adapters." in shown


def test_the_list_of_one_rival_has_no_other_and_no_markup(run):
    shown = run("rivals", "list", "dexperts").stdout
    assert shown.startswith("dexperts ") and "gedi" not in shown
    assert "``" not in run("rivals", "list").stdout
    refused = run("rivals", "list", "dexpert")
    assert refused.exit_code == 1 and "There is no rival 'dexpert'" in " ".join(refused.output.split())


def test_a_study_after_the_training_trains_nothing(train, run, files, monkeypatch):
    result = train()
    assert result.exit_code == 0, result.output
    assert result.output.count(" made ") == 2 and "Nothing has to be trained for self-debias." in result.output
    made = parts(files / "work")
    assert len(made) == 2
    monkeypatch.setattr(dexperts, "train_on_texts", None)
    where = ("--out", files / "results", "--work-dir", files / "work", "--data-dir", files / "data")
    study = run("reproduce", "--spec", files / "small.toml", *where)
    assert study.exit_code == 0, study.output
    [path] = (files / "results").glob("*.json")
    assert f"{LINE} alpha=1" in [c.name for c in read_record(path).configurations]
    assert same(parts(files / "work"), made)
    # in another folder nothing is stored, so that the study would have to train
    assert (
        run("reproduce", "--spec", files / "small.toml", *instead(where, "--work-dir", files / "other")).exit_code == 1
    )


def test_a_second_training_makes_nothing(train, files, monkeypatch):
    assert train().exit_code == 0
    monkeypatch.setattr(dexperts, "train_on_texts", None)
    again = train("dexperts")
    assert again.exit_code == 0, again.output
    assert again.output.count("stored before") == 2 and " made " not in again.output


def test_interrupted_training_resumes_to_the_same_parts(train, files, monkeypatch):
    assert train(work="whole").exit_code == 0
    step = training._step

    def interrupted(parameters, optimiser, loss_of, number, *more):
        if number == 1:
            raise KeyboardInterrupt
        return step(parameters, optimiser, loss_of, number, *more)

    # two blocks in two steps, so that there is something to resume
    monkeypatch.setattr("repsurgery.studies.toxicity.decoding.adapters.BATCH", 1)
    assert train(work="whole-2").exit_code == 0
    with monkeypatch.context() as patch:
        patch.setattr(training, "_step", interrupted)
        result = train()
        assert result.exit_code == INTERRUPTED
        assert "rivals stopped; run again to resume." in result.stderr
    assert not parts(files / "work") and len(list((files / "work" / "rivals").iterdir())) == 1
    taken = []
    monkeypatch.setattr(training, "_step", lambda *words: (taken.append(words[3]), step(*words))[1])
    assert train().exit_code == 0
    assert taken[0] == 1, "the step before the interruption is not repeated"
    assert same(parts(files / "work"), parts(files / "whole-2"))
    assert not same(parts(files / "work"), parts(files / "whole"))


def test_any_labelled_table_will_do(run, files, tmp_path):
    table = tmp_path / "mine.csv"
    table.write_text((tmp_path / "texts.csv").read_text().replace("text,label", "words,tone", 1))
    result = run(
        *("rivals", "train", LINE, "--data", table, "--text", "words", "--label", "tone", "--target", "clean"),
        *("--model", files / "model", "--set", "fit_rows=25", "--set", "held_out=10", "--work-dir", files / "mine"),
    )
    assert result.exit_code == 0, result.output
    assert len(parts(files / "mine")) == 2 and str(files / "mine" / "rivals") in result.output
    # the study of the same texts asks for the same files
    assert run("rivals", "train", "--spec", files / "small.toml", "--work-dir", files / "mine").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["oracle"], "no rival 'oracle'"),
        ([""], "no rival ''"),
        ([" "], "no rival ' '"),
        (["dexperts volume=3"], "alpha=…"),
        (["dexperts", "--target", "polite"], "no text labelled as target 'polite'"),
        (["dexperts tokens=3"], "at least one block"),
        (["dexperts", "--data", "missing.csv"], "missing.csv"),
        (["dexperts", "--set", "fit_rows"], "--set got 'fit_rows'"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(train, files, words, said):
    result = train(*words)
    assert result.exit_code == 1
    assert said in " ".join(result.output.split()) and "Traceback" not in result.output
    assert not parts(files / "work")


def test_without_any_rival_it_says_what_to_name(run, train, files):
    assert "rivals train dexperts" in run("rivals", "train").stderr
    (files / "small.toml").write_text(toxicity_toml(small_spec(files, configurations=["mean all"])), encoding="utf-8")
    assert "no rival among its configurations" in train().stderr
    (files / "small.toml").write_text('experiment = "bios"\n', encoding="utf-8")
    assert "only the toxicity study has rivals" in train("dexperts").stderr
