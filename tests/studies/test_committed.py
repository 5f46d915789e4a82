"""The committed records are whole, made by the specifications beside them, and quoted as they are."""

import re
from pathlib import Path

import pytest

from repsurgery.studies.fairness import load_spec, make_spec
from repsurgery.studies.fairness.report.equal_accuracy import equal_accuracy_table
from repsurgery.studies.page import write_study_report
from repsurgery.studies.records import read_record
from repsurgery.studies.toxicity import load_toxicity_spec, make_toxicity_spec
from repsurgery.studies.toxicity.report.significance import toxicity_with_tests
from repsurgery.studies.tuned.record import read_tune_record
from repsurgery.studies.tuned.tables import candidates_table, facts_tables
from repsurgery.studies.tuned.words import nats

FOLDER = Path(__file__).parents[2] / "experiments"
(RIVALS,) = (FOLDER / "rivals").glob("*.json")
EVERY = [*sorted((FOLDER / "results").glob("*.json")), RIVALS]
TOXICITY = [path for path in EVERY if path.stem.startswith("toxicity-")]
TUNED = sorted((FOLDER / "tune").glob("*.json"))
RECORDS = [path for path in EVERY if path not in TOXICITY]


def test_there_are_records():
    assert len(RECORDS) >= 9 and TOXICITY


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_was_made_by_the_specification_beside_it(path):
    record, spec = read_record(path), load_spec(path.with_suffix(".toml"))
    # an option that came later has its default
    assert make_spec(**record.spec) == spec
    assert all(result.measures for setting in record.settings for result in setting.methods)


def test_figures_in_the_readme_are_those_of_the_records():
    shown = set()
    for path in RECORDS:
        for setting in read_record(path).settings:
            for result in setting.methods:
                names = ("test.tpr_gap_rms", "test.accuracy")
                if all(name in result.measures for name in names):
                    pair = [f"{result.measures[name].value:.3f}".lstrip("0") for name in names]
                    shown.add((result.method, " / ".join(pair)))
    lines = [line for line in (FOLDER / "README.md").read_text().splitlines() if line.count(" / .") == 4]
    assert len(lines) == 6
    for line in lines:
        for method, cell in zip(("base", "leace", "mean", "mimic"), re.findall(r"\.\d+ / \.\d+", line), strict=True):
            assert (method, cell) in shown, f"{method}: {cell}"


def test_gaps_at_equal_accuracy_in_the_readme_are_those_of_the_records():
    shown = set()
    for path in RECORDS:
        record = read_record(path)
        for *_, zero, one, two, lowest in getattr(equal_accuracy_table(record), "rows", ()):
            shown.add((zero, one, two, " / ".join(re.findall(r"\.\d{3}", lowest)[:2])))
    lines = [line.strip("| ").split(" | ") for line in (FOLDER / "README.md").read_text().splitlines()]
    rows = [cells[-4:] for cells in lines if len(cells) in (5, 6) and re.match(r"\.\d{3} / \.\d{3}", cells[-1])]
    rows = [cells for cells in rows if all(re.fullmatch(r"\.\d{3}", cell) for cell in cells[:3])]
    assert len(rows) == 18
    for *gaps, lowest in rows:
        assert (*gaps, lowest.partition(" (")[0]) in shown, gaps


@pytest.mark.parametrize("path", TOXICITY, ids=lambda path: path.stem)
def test_a_toxicity_record_was_made_by_the_specification_beside_it(path):
    record, spec = read_record(path), load_toxicity_spec(path.with_suffix(".toml"))
    # an option that came later has its default
    assert make_toxicity_spec(**record.spec) == spec
    assert [c.name for c in record.configurations] == ["base", *spec.configurations]
    assert all(c.measures for c in record.configurations)


def test_toxicity_figures_in_the_readme_are_those_of_a_record():
    keys = ("linear.expected_max_toxicity", "linear.toxicity_probability", "bilstm.expected_max_toxicity")
    records = [read_record(path) for path in TOXICITY if path != RIVALS]
    shown = {row_of(c, keys) for record in records if record.wikitext for c in record.configurations}
    lines = [line.strip("| ").split(" | ") for line in (FOLDER / "README.md").read_text().splitlines()]
    rows = [tuple(cells) for cells in lines if len(cells) == 7 and cells[6].endswith("%")]
    assert len(rows) >= 7
    for row in rows:
        assert row in shown, row


def test_figures_at_equal_prices_are_those_of_the_record():
    record = read_record(next(path for path in TOXICITY if path.stem.endswith("62ecb0e4ff7d")))
    base = record.configurations[0].measures["wikitext.word_perplexity"].value
    shares = [f"{s}.expected_max_toxicity" for s in ("bilstm", "linear", "minilm")] + ["bilstm.toxicity_probability"]
    shown = []
    for c in record.configurations:
        value = {name: estimate.value for name, estimate in c.measures.items()}
        cells = [f"{value[name]:.3f}".lstrip("0") for name in shares]
        cells += [f"{value['wikitext.word_perplexity'] / base:.3f}", f"{value['kl.own']:.3f}".lstrip("0")]
        shown.append([*cells, f"{value['perplexity']:.1f}", f"{value['perplexity.gemma-3-270m']:.1f}"])
    lines = [line.strip("| ").split(" | ") for line in (FOLDER / "README.md").read_text().splitlines()]
    rows = [cells[1:] for cells in lines if len(cells) == 9 and cells[1].startswith(".")]
    assert rows == shown


def test_figures_of_rivals_are_those_of_their_record():
    configurations = read_record(RIVALS).configurations
    base = configurations[0].measures["wikitext.word_perplexity"].value
    shares = [f"{s}.expected_max_toxicity" for s in ("bilstm", "linear", "minilm")] + ["bilstm.toxicity_probability"]
    shown = []
    for c in configurations:
        value = {name: estimate.value for name, estimate in c.measures.items()}
        cells = [f"{value[name]:.3f}".lstrip("0") for name in shares]
        cells += [f"{value['perplexity']:.1f}", f"{value['distinct.1']:.3f}".lstrip("0")]
        cells += [f"{value['kl.own']:.3f}"] if "kl.own" in value else ["–"]
        words = value.get("wikitext.word_perplexity")
        shown.append([*cells, "–" if words is None else f"{words / base:.3f}", f"{c.cost_per_token:.2f}"])
    lines = [line.strip("| ").split(" | ") for line in (FOLDER / "README.md").read_text().splitlines()]
    rows = [[*cells[1:2], *cells[3:-1]] for cells in lines if len(cells) == 12 and cells[1].startswith(".")]
    assert rows == shown


def test_the_report_of_rivals_is_that_of_their_record(tmp_path):
    write_study_report([read_record(RIVALS)], tmp_path)
    assert (tmp_path / "report.md").read_text() == (RIVALS.parent / "report.md").read_text()


def row_of(c, keys):
    shares = [f"{c.measures[key].value:.3f}".lstrip("0") for key in keys]
    perplexities = [f"{c.measures[key].value:.1f}" for key in ("perplexity", "wikitext.word_perplexity")]
    return (c.name, *shares, *perplexities, f"{c.measures['steered'].value:.0%}")


@pytest.mark.parametrize("path", TOXICITY, ids=lambda path: path.stem)
def test_the_maxima_of_a_toxicity_record_suffice_for_its_tests(path):
    record = read_record(path)
    if any(one.p_value is not None for one in record.configurations[1].differences.values()):
        # a record with tests of its own keeps them
        assert toxicity_with_tests(record).configurations == record.configurations
        return
    for before, after in zip(record.configurations, toxicity_with_tests(record).configurations, strict=True):
        for scorer in record.scorers:
            name = f"{scorer}.expected_max_toxicity"
            # computed anew, not kept
            assert before.measures[name].low != after.measures[name].low
            assert before.measures[name].value == after.measures[name].value
            assert before.name == "base" or after.differences[name].p_value is not None


@pytest.mark.parametrize("path", TUNED, ids=lambda path: path.stem)
def test_a_predicted_price_of_a_search_is_near_the_measured_one_or_is_not_stated(path):
    record = read_tune_record(path)
    assert record["price"]["kl"] > 0
    pairs = [(record["price"]["predicted_kl"], record["price"]["kl"])]
    pairs += [(row["predicted_kl"], row["measured_kl"]) for row in (*record["candidates"], *record["compared"])]
    stated = [(predicted, measured) for predicted, measured in pairs if predicted is not None]
    assert all(1 / 1.3 < predicted / measured < 1.3 for predicted, measured in stated)
    # the chosen steerings of the zoo were priced again
    assert bool(stated) == path.stem.startswith("zoo-")


@pytest.mark.parametrize("path", TUNED, ids=lambda path: path.stem)
def test_a_page_shows_the_measured_price_where_none_is_predicted(path):
    record = read_tune_record(path)
    shown = dict(row for table in facts_tables(record) for row in table.rows)
    assert shown["measured KL"] == nats(record["price"]["kl"])
    assert shown["predicted KL"] == nats(record["price"]["predicted_kl"])
    table = candidates_table(record)
    # a column without any figure is not shown
    assert ("predicted KL" in table.headings) == any(row["predicted_kl"] is not None for row in record["candidates"])
    measured = table.headings.index("measured KL")
    assert [row[measured] for row in table.rows].count("–") == sum(
        row["measured_kl"] is None for row in record["candidates"]
    )
