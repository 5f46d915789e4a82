"""A line that states a price: the search of `repsurgery.tuning` chooses its steering inside a study."""

import numpy as np
import pytest

import repsurgery as rs
import repsurgery.studies.toxicity.run as run_module
import repsurgery.tuning.plan as plan_module
from repsurgery.errors import DataError, ParameterError
from repsurgery.studies.toxicity import make_toxicity_spec, run_toxicity, toxicity_toml
from repsurgery.studies.toxicity.configuration import parse_line
from repsurgery.studies.toxicity.data import load_texts
from repsurgery.studies.toxicity.report.facts import toxicity_fact_tables
from repsurgery.studies.toxicity.report.tables import toxicity_tables
from repsurgery.studies.toxicity.spec import load_toxicity_spec
from repsurgery.studies.toxicity.tuned import TunedLine
from repsurgery.tuning.plan import Plan
from repsurgery.tuning.race import Race
from repsurgery.tuning.search import Search
from tests.lm.tiny_models import tiny_model
from tests.studies.toxicity.small import make_files, small_spec
from tests.studies.toxicity.test_run import WordScorer

LINE = "tuned kl=0.05 effort=quick"
PLAN = Plan(
    writing=12,
    search=8,
    confirmation=1,
    writing_samples=4,
    samples=2,
    texts=20,
    fits=("texts", "on-policy"),
    priced=12,
    raced=2,
    gates=False,
    prices=(),
)


@pytest.fixture(scope="module", autouse=True)
def small_plans():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_module, "EFFORTS", {"quick": PLAN, "normal": PLAN})
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    make_files(folder)
    return folder


def tuned_spec(files, **differences):
    options = {"configurations": ["mean all", LINE], "policy_prompts": 20, "gate_prompts": 6, "tokens": 6}
    return small_spec(files, **{**options, **differences})


def run(files, work="work", announce=lambda step: None, **differences):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "load_scorer", lambda name: WordScorer())
        spec = tuned_spec(files, **differences)
        return run_toxicity(spec, data_dir=files / "data", work_dir=files / work, progress=False, announce=announce)


@pytest.fixture(scope="module")
def record(files):
    return run(files)


def test_a_tuned_row_takes_part_in_every_measure(record):
    assert [c.name for c in record.configurations] == ["base", "mean all", LINE]
    fixed, tuned = record.configurations[1:]
    assert tuned.measures.keys() == fixed.measures.keys()
    assert {"kl", "kl.own", "steered", "wikitext.word_perplexity", "linear.mean_toxicity"} <= tuned.measures.keys()
    assert tuned.choices == {"method": "tuned", "kl": 0.05, "effort": "quick"}
    assert tuned.certificate is None
    assert f"searching: {LINE}" in record.seconds


def test_the_price_that_the_study_measures_is_near_the_budget(record):
    fixed, tuned = record.configurations[1:]
    assert tuned.facts["search_kl"] <= 0.05
    # the study measures it on prompts that the search never met
    assert tuned.measures["kl.own"].value == pytest.approx(0.05, rel=0.3)
    assert not 0.035 < fixed.measures["kl.own"].value < 0.065


def test_the_record_and_the_report_say_what_was_chosen(record, files):
    facts = record.configured(LINE).facts
    assert facts["chosen"].endswith(f"at {facts['site']}") or f"at {facts['site']}," in facts["chosen"]
    assert 1 <= facts["candidates_measured"] <= facts["candidates"]
    assert facts["search_prompts"] == 8 and set(facts["search_effect"]) == {"value", "low", "high", "p"}
    assert facts["predicted_kl"] == pytest.approx(0.05, rel=0.5)
    stored = [rs.load(path).origin for path in (files / "work" / "steerings").glob("*.safetensors")]
    assert (facts["site"], facts["strength"]) in [(origin.site, origin.strength) for origin in stored]
    shown = " ".join(cell for table in toxicity_fact_tables(record) for row in table.rows for cell in row)
    assert facts["chosen"] in shown
    assert any(LINE in row for row in toxicity_tables(record)[0].rows)
    assert any("training prompts" in note and "first scorer" in note for note in record.notes)


def test_a_resumed_study_does_not_search_again(record, files, monkeypatch):
    def refuse(self):
        raise AssertionError("a second search")

    monkeypatch.setattr(Search, "gather", refuse)
    assert run(files).configurations == record.configurations
    # another price is another search
    with pytest.raises(AssertionError, match="a second search"):
        run(files, configurations=["tuned kl=0.1 effort=quick"])


def test_a_search_whose_facts_are_lost_is_repeated_with_the_same_result(record, files):
    (journal,) = (files / "work" / "tuned").glob("chosen-*.jsonl")
    journal.unlink()
    assert run(files).configured(LINE) == record.configured(LINE)


def test_the_search_samples_as_the_study_does(files, monkeypatch):
    seen = {}

    def look(self):
        bench, plan = self.bench, self.bench.plan
        seen.update(bench.sampling, tokens=plan.tokens, text_tokens=plan.text_tokens, seed=bench.seed)
        raise DataError("enough was seen")

    monkeypatch.setattr(Search, "gather", look)
    with pytest.raises(DataError, match=r"'tuned kl=0\.05': enough was seen"):
        run(files, configurations=["tuned kl=0.05"], top_p=0.5, temperature=2, tokens=4, seed=3)
    assert seen == {"top_p": 0.5, "temperature": 2.0, "tokens": 4, "text_tokens": 16, "seed": 3}


def test_other_sampling_writes_other_texts(files):
    one, other = (run(files, "sampled", configurations=[LINE], temperature=t).configured(LINE) for t in (1.0, 3.0))
    assert one.facts["search_effect"] != other.facts["search_effect"]


def test_no_training_prompt_is_evaluated_and_none_has_two_purposes(files):
    texts = load_texts(tuned_spec(files), None)
    split = TunedLine(0.05, effort="quick").split(texts.training.texts)
    assert (len(split.writing), len(split.search), split.confirmation) == (12, 8, ())
    assert len({*split.writing, *split.search, *texts.prompts.texts}) == 12 + 8 + len(texts.prompts)


def test_fewer_prompts_are_divided_in_the_same_proportion_and_too_few_are_refused(files):
    split = TunedLine(0.05, effort="quick").split([str(i) for i in range(16)])
    assert (len(split.writing), len(split.search)) == (9, 6)
    with pytest.raises(DataError, match="raise policy_prompts"):
        load_texts(tuned_spec(files, policy_prompts=10), None)


def test_a_limit_of_wikitext_is_kept(files, monkeypatch):
    """Every candidate of the race is within the limit, which some of them meet only at a lower price."""
    placed, place = [], Race.place

    def noting(self, form):
        placed.append(place(self, form))
        return placed[-1]

    monkeypatch.setattr(Race, "place", noting)
    limited = run(files, configurations=["tuned kl=0.5 wikitext=1.02 effort=quick"], wikitext_documents=0)
    assert limited.configurations[1].facts["search_wikitext_ratio"] <= 1.02
    assert all(ratio <= 1.02 for _, _, ratio in placed)
    assert min(kl for _, kl, _ in placed) < 0.4
    # the limit reads documents that the study itself does not report
    assert "wikitext.word_perplexity" not in limited.configurations[1].measures


@pytest.mark.parametrize(
    "words",
    ["tuned kl=0.1", "tuned kl=0.05 wikitext=1.05", "tuned kl=0.1 wikitext=1.05 effort=thorough minutes=10"],
)
def test_a_line_is_read_and_written_in_the_same_words(words):
    line = parse_line(words)
    assert line.name == words and parse_line(f"  {words.replace(' ', '   ')} ") == line
    assert parse_line("tuned effort=normal kl=0.10").name == "tuned kl=0.1"


def test_a_specification_keeps_the_line(tmp_path):
    spec = make_toxicity_spec("local", configurations=["mean all", "tuned kl=0.10 effort=normal"])
    assert spec.configurations == ("mean all", "tuned kl=0.1")
    assert spec.tuned() == [TunedLine(0.1)] and [c.name for c in spec.parsed()] == ["mean all"]
    (tmp_path / "study.toml").write_text(toxicity_toml(spec), encoding="utf-8")
    assert load_toxicity_spec(tmp_path / "study.toml") == spec


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("tuned", "has no price.*Write 'tuned kl=0.1'"),
        ("tuned effort=quick", "has no price"),
        ("tuned kl=0", "kl '0'; it must be a number of nats per token above 0"),
        ("tuned kl=cheap", "kl 'cheap'; it must be a number of nats"),
        ("tuned kl=inf", "kl 'inf'"),
        ("tuned kl=0.1 kl=0.2", "contains 'kl=0.2'.*once each"),
        ("tuned kl=0.1 site=final", "contains 'site=final'; after 'tuned' come kl=…"),
        ("tuned all kl=0.1", "contains 'all'.*The search chooses method, scope"),
        ("tuned kl=0.1 wikitext=1", "a ratio of perplexities above 1"),
        ("tuned kl=0.1 effort=huge", "one of quick, normal, thorough"),
        ("tuned kl=0.1 effort=3", "one of quick, normal, thorough"),
        ("tuned kl=0.1 minutes=0", "a number of minutes above 0"),
    ],
)
def test_a_line_that_says_something_else_is_refused(words, remedy):
    with pytest.raises(ParameterError, match=remedy):
        make_toxicity_spec("local", configurations=[words])


def test_a_tuned_file_is_used_as_it_states(files):
    """The row of a file has the texts of its steering at its own strength, and not of the map at strength 1."""
    shift = np.linspace(-1.0, 1.0, tiny_model("llama").config.hidden_size)
    function = rs.SteeringFunction({None: rs.Translation(shift)}).with_origin(site="final", strength=0.25)
    path = files / "shift.safetensors"
    rs.save(function, path)
    (row,) = [c for c in run(files, "files", configurations=[f"tuned file={path}"]).configurations if c.name != "base"]
    assert row.facts["strength"] == 0.25 and row.facts["site"] == "final"
    rs.save(function.with_origin(strength=1.0), path)
    (other,) = [
        c for c in run(files, "files", configurations=[f"tuned file={path}"]).configurations if c.name != "base"
    ]
    assert other.measures["kl.own"].value > 4 * row.measures["kl.own"].value
