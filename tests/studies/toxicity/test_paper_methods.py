"""The methods of the paper in one study: what is measured, certified, announced and repeated."""

import math

import pytest

import repsurgery.studies.toxicity.run as run_module
from repsurgery.errors import DataError
from repsurgery.studies.toxicity import make_toxicity_spec, run_toxicity
from repsurgery.studies.toxicity.data import load_texts
from repsurgery.studies.toxicity.spec import POOLED
from tests.studies.toxicity.small import make_files, small_spec

# few texts leave every class covariance singular
LINES = [f"{words} shrinkage=oas" if words.startswith("leace") else words for words in POOLED]


class WordScorer:
    """Score a text by the share of its words below w9; the empty text has none."""

    name, version, digest = "words", "1", "0" * 64

    def __call__(self, given):
        return [sum(len(w) == 2 for w in t.split()) / len(t.split()) if t.split() else None for t in given]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    make_files(folder)
    return folder


def run(folder, work, announce=lambda step: None, **differences):
    options = {"configurations": LINES, "prompt_count": 3, "examples": 3, "wikitext_documents": 0}
    spec = small_spec(folder, **{**options, **differences})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "load_scorer", lambda name: WordScorer())
        return run_toxicity(spec, work_dir=folder / work, progress=False, announce=announce)


@pytest.fixture(scope="module")
def record(folder):
    said = []
    return run(folder, "work", said.append), said


def test_base_and_six_configurations_are_measured(record):
    record, _ = record
    assert [(c.choices["method"], c.choices["scope"]) for c in record.configurations] == [
        ("base", "none"),
        *(("mean", "selective"), ("mean", "all")),
        *(("mimic", "selective"), ("mimic", "all")),
        *(("leace", "selective"), ("leace", "all")),
    ]
    for c in record.configurations:
        scope = c.choices["scope"]
        assert math.isfinite(c.measures["perplexity"].value)
        assert {"linear.expected_max_toxicity", "linear.mean_toxicity", "distinct.3"} <= set(c.measures)
        assert 0 <= c.measures["steered"].value <= 1
        assert scope == "selective" or c.measures["steered"].value == {"none": 0.0, "all": 1.0}[scope]
        assert (c.measures["kl"].value == 0) == (scope == "none")
    # texts of every prompt stand side by side
    assert len(record.examples) == 3
    for example in record.examples:
        assert set(example.continuations) == {c.name for c in record.configurations}
    assert any(e.continuations["base"] != e.continuations["mean all"] for e in record.examples)


def test_certificates_hold_on_fitted_rows_and_are_measured_on_held_out_ones(record):
    record, _ = record
    certified = [c for c in record.configurations if c.certificate is not None]
    assert [(c.choices["method"], c.choices["scope"]) for c in certified] == [
        *(("mean", "selective"), ("mean", "all")),
        *(("mimic", "selective"), ("mimic", "all")),
        ("leace", "all"),
    ]
    for c in certified:
        pair = c.certificate["by_source"][0]
        assert c.certificate["mean_gap"] < 1e-9 < pair["mean_gap_before"]
        assert c.held_out["mean_gap"] > 1e-3
        assert pair["rows_source"] == 25
        assert c.held_out["by_source"][0]["rows_source"] == 10


def test_every_step_is_announced_and_timed(record):
    record, said = record
    assert [step for step in record.seconds if not step.startswith("writing, ")] == said
    assert len(said) == 10
    assert f"writing, {record.configurations[-1].name}" in record.seconds
    assert all(seconds >= 0 for seconds in record.seconds.values())


def test_equal_seeds_give_equal_texts(record, folder):
    again = run(folder, "again")
    assert again.examples == record[0].examples
    assert again.configurations == record[0].configurations


def test_a_corpus_too_small_for_the_scale_is_refused(folder):
    with pytest.raises(DataError, match="lower fit_rows"):
        run(folder, "work", fit_rows=45)


def test_the_embedded_texts_and_prompts_need_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("REPSURGERY_DATA", str(tmp_path / "absent"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    sizes = {"fit_rows": 200, "held_out": 60, "prompt_count": 15, "prompt_toxicity": 0.0}
    spec = make_toxicity_spec(data="courtesy", prompts="courtesy", source="rude", target="courteous", **sizes)
    loaded = load_texts(spec, None)
    assert set(loaded.labelled.counts) == {"rude", "courteous"} and loaded.labelled.name == "courtesy"
    assert len(loaded.prompts) == 15 and len(loaded.fitted["rude"]) == 200
