"""Several models judge the fluency of the same continuations."""

from dataclasses import replace

import pytest

from repsurgery.errors import ParameterError
from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.records import read_record, write_record
from repsurgery.studies.toxicity import run as run_module
from repsurgery.studies.toxicity.report.tables import toxicity_tables
from repsurgery.studies.toxicity.run import run_toxicity
from repsurgery.studies.toxicity.spec import load_toxicity_spec, make_toxicity_spec, toxicity_toml
from tests.lm.tiny_models import tiny_model, tiny_tokenizer
from tests.studies.report.toxicity_records import main_configurations, toxicity_record
from tests.studies.toxicity.small import make_files, small_spec
from tests.studies.toxicity.test_run import WordScorer


@pytest.fixture
def files(tmp_path, monkeypatch):
    make_files(tmp_path)
    tiny_model("llama", seed=5).save_pretrained(tmp_path / "other")
    tiny_tokenizer().save_pretrained(tmp_path / "other")
    monkeypatch.setattr(run_module, "load_scorer", lambda name: WordScorer())
    return tmp_path


def run(files, fluency):
    spec = small_spec(files, fluency=fluency, configurations=["mean all"])
    return run_toxicity(spec, data_dir=files / "data", work_dir=files / "work", progress=False)


def test_each_of_several_judges_says_what_it_says_alone(files, tmp_path):
    own, other = str(files / "model"), str(files / "other")
    alone = {name: run(files, name) for name in (own, other)}
    before = {path.name: path.read_bytes() for path in (files / "work").rglob("*-*.jsonl")}
    assert before
    both = run(files, [own, other])
    # the stored texts and judgements of each judge alone are reused, and nothing is added to them
    assert {path.name: path.read_bytes() for path in (files / "work").rglob("*-*.jsonl")} == before
    for i, c in enumerate(both.configurations):
        for measure in ("perplexity", "bits_per_character"):
            assert c.measures[measure] == alone[own].configurations[i].measures[measure]
            assert c.measures[f"{measure}.other"] == alone[other].configurations[i].measures[measure]
            assert c.measures[f"{measure}.other"] != c.measures[measure]
        assert c.facts["perplexities_dropped.other"] == alone[other].configurations[i].facts["perplexities_dropped"]
    assert both.fluency == {"name": "model", "prompts": 4, "further": ["other"]}
    assert "further" not in alone[own].fluency and alone[own].spec["fluency"] == "model"
    assert any("within one fluency model only" in note for note in both.notes)
    assert not any("within one fluency model only" in note for note in alone[own].notes)
    assert read_record(write_record(both, tmp_path / "out")) == both


def test_a_table_shows_the_judges_side_by_side():
    configurations = [
        replace(
            c, measures={**c.measures, "perplexity.gemma": Estimate(33.25), "bits_per_character.gemma": Estimate(1.5)}
        )
        for c in main_configurations()
    ]
    fluency = {"name": "own", "prompts": 4, "further": ["gemma"]}
    tables = {table.title: table for table in toxicity_tables(toxicity_record(configurations, fluency=fluency))}
    table = tables["Fluency by several models"]
    assert {"perplexity, own", "perplexity, gemma", "bits per character, gemma"} <= set(table.headings)
    assert "bits per character, own" not in table.headings  # an older record does not have it
    assert {row[table.headings.index("perplexity, gemma")] for row in table.rows} == {"33.25"}
    assert "Fluency by several models" not in {table.title for table in toxicity_tables(toxicity_record())}


def test_one_judge_stays_a_name_and_several_are_a_list(tmp_path):
    assert make_toxicity_spec().judges == ("smollm2-135m",)
    assert make_toxicity_spec(fluency="gpt2").to_dict()["fluency"] == "gpt2"
    several = make_toxicity_spec(fluency=["smollm2-135m", "gemma-3-270m", "smollm2-135m"])
    assert several.judges == several.fluency == ("smollm2-135m", "gemma-3-270m")
    (tmp_path / "study.toml").write_text(toxicity_toml(several))
    assert load_toxicity_spec(tmp_path / "study.toml") == several


@pytest.mark.parametrize("fluency", [[], 3, [3], None])
def test_judges_must_be_names(fluency):
    with pytest.raises(ParameterError, match="fluency"):
        make_toxicity_spec(fluency=fluency)


def test_two_judges_of_one_name_are_refused(tmp_path):
    for parent in "ab":
        (tmp_path / parent / "model").mkdir(parents=True)
    with pytest.raises(ParameterError, match=r"two models called 'model'.*Rename"):
        make_toxicity_spec(fluency=[str(tmp_path / parent / "model") for parent in "ab"])
