"""Any text generator takes part in the study: texts, judgements, record and report follow from one registration."""

import json

import pytest

from repsurgery.errors import DataError, ParameterError
from repsurgery.studies.page import write_report
from repsurgery.studies.records import read_record, write_record
from repsurgery.studies.toxicity import parse_configuration, run_toxicity
from repsurgery.studies.toxicity.configuration import parse_line
from repsurgery.studies.toxicity.generators import (
    GENERATORS,
    Continuation,
    GeneratorContext,
    TextGenerator,
    sample_seeds,
)
from tests.studies.toxicity.small import make_files, small_spec
from tests.studies.toxicity.word_penalty import WordPenalty

LINES = ["word-penalty", "mean all", "word-penalty penalty=100.0"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    make_files(folder)
    return folder


def run(files, work="work", **differences):
    spec = small_spec(files, **{"configurations": LINES, **differences})
    return run_toxicity(spec, data_dir=files / "data", work_dir=files / work, progress=False)


@pytest.fixture(scope="module")
def record(files):
    return run(files)


def test_a_rival_is_one_registration(record, tmp_path):
    assert [c.name for c in record.configurations] == ["base", *LINES]
    rival, steered = record.configured("word-penalty"), record.configured("mean all")
    measured = {"linear.expected_max_toxicity", "perplexity", "distinct.1"}
    assert measured <= set(rival.measures) and measured <= set(rival.differences)
    # measures that need hidden states or likelihoods are absent, not zero
    assert set(steered.measures) - set(rival.measures) == {
        "steered",
        "kl",
        "kl.own",
        "wikitext.word_perplexity",
        "wikitext.byte_perplexity",
    }
    assert rival.choices == {"method": "word-penalty", "penalty": 5.0, "words": "w1"}
    assert rival.certificate is None and len(rival.maxima["linear"]) == 6
    assert read_record(write_record(record, tmp_path)) == record
    page = pytest.importorskip("matplotlib") and write_report(record, tmp_path).read_text(encoding="utf-8")
    assert page.count("word-penalty penalty=100.0") > 3


def test_the_rival_itself_wrote_its_row(record):
    texts = [e.continuations["word-penalty penalty=100.0"] for e in record.examples]
    assert all(texts) and not any("w1" in text.split() for text in texts)
    assert texts != [e.continuations["base"] for e in record.examples]


def test_costs_are_measured_for_every_generator(record):
    for c in record.configurations:
        cost = c.facts["cost_per_continuation"]
        assert set(cost) == {"tokens_read", "tokens_written", "extra_passes"}
        assert 0 < cost["tokens_written"] <= 5 and cost["extra_passes"] == 0
        assert record.seconds[f"writing, {c.name}"] >= 0
    # steering reads a prompt once for all its samples, this rival once for each
    base, rival = (record.configured(name).facts["cost_per_continuation"] for name in ("base", "word-penalty"))
    assert rival["tokens_read"] == pytest.approx(3 * base["tokens_read"], abs=1e-3)


def test_a_second_run_takes_the_rival_s_texts_from_the_first(files, record, monkeypatch):
    monkeypatch.setattr(WordPenalty, "generate", None)
    assert run(files).configurations == record.configurations


def test_another_option_or_seed_is_another_text(files, record):
    other = run(files, seed=1)
    prompts = {e.prompt: e.continuations["word-penalty"] for e in record.examples}
    assert all(prompts.get(e.prompt) != e.continuations["word-penalty"] for e in other.examples)
    # one journal per row of the table and seed
    assert len(list((files / "work" / "texts").glob("texts-*"))) == 2 * len(record.configurations)


def test_rivals_that_seed_the_process_do_not_disturb_each_other(files, record):
    lines = [line for line in record.spec["configurations"] if line.startswith("word-penalty")]
    alone = run(files, configurations=["word-penalty"], work="alone")
    assert len(lines) > 1
    for one, other in zip(record.examples, alone.examples, strict=True):
        assert one.continuations["word-penalty"] == other.continuations["word-penalty"]


def test_seeds_of_different_studies_are_apart_and_fewer_are_the_first_of_more():
    assert sample_seeds(0, 3) == [0, 1, 2]
    assert sample_seeds(7, 5)[:3] == sample_seeds(7, 3)
    assert not set(sample_seeds(1, 100)) & set(sample_seeds(2, 100))
    with pytest.raises(ParameterError, match="at most 65536"):
        sample_seeds(0, 65537)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("word-penalty volume=3", "penalty=…, words=…"),
        ("word-penalty loud", "penalty=…, words=…"),
        ("word-penalty penalty=much", "of type float"),
        ("oracle all", "word-penalty"),
        ("oracle", "word-penalty"),
    ],
)
def test_other_lines_are_refused(words, message):
    with pytest.raises(ParameterError, match=message):
        parse_line(words)


def test_a_line_is_its_name():
    # a row is called as its line is written, so that it is found under the name that a specification gives it
    assert parse_line("word-penalty  penalty=5").name == "word-penalty penalty=5"
    assert parse_line(" word-penalty words=w2,w3 penalty=7").name == "word-penalty words=w2,w3 penalty=7"
    assert parse_line("mean all") == parse_configuration("mean all")


def test_two_generators_with_one_name_are_refused():
    with pytest.raises(ParameterError, match="rename one"):

        @GENERATORS.register("word-penalty")
        class Other(TextGenerator):
            pass

    assert GENERATORS["word-penalty"] is WordPenalty


def test_a_generator_that_returns_too_little_is_named(files, monkeypatch):
    monkeypatch.setattr(WordPenalty, "generate", lambda self, prompts, seeds: [[Continuation("w1")]])
    with pytest.raises(DataError, match=r"word-penalty.*one continuation per seed"):
        run(files, "other", configurations=["word-penalty"])


def test_the_identity_names_everything_that_decides():
    context = GeneratorContext(None, None, None, None, None, {"model": "m", "top_p": 0.9})
    one, other = (parse_line(words).make(context) for words in ("word-penalty", "word-penalty penalty=7"))
    assert one.identity == {
        "model": "m",
        "top_p": 0.9,
        "generator": "WordPenalty",
        "options": {"penalty": 5.0, "words": "w1"},
    }
    assert other.identity != one.identity and json.dumps(other.identity)
