import dataclasses
import json

import pytest

from repsurgery.errors import DataError
from repsurgery.scorers import ReplayScorer, ToxicityScorer, load_scorer
from tests.datasets.real import real_folder

ROWS = [
    {"prompt": {"text": "So", "toxicity": 0.25}, "continuation": {"text": " be it.", "toxicity": 0.125}},
    {"prompt": {"text": "No", "toxicity": None}, "continuation": {"text": " way.", "threat": 0.1}},
    {"prompt": {"text": "So", "toxicity": 0.5}},
]


def write(path, rows):
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    return path


def test_exact_texts_come_back_and_others_score_none(tmp_path):
    scorer = ReplayScorer.from_jsonl(write(tmp_path / "p.jsonl", [*ROWS, ""]), version="2020-09")
    assert isinstance(scorer, ToxicityScorer)
    assert (scorer.name, scorer.version) == ("perspective-replay", "2020-09")
    # the first score of a text that comes twice; none where there was none; white space counts
    assert scorer(["So", " be it.", "be it.", "No", " way.", ""]) == [0.25, 0.125, None, None, None, None]
    assert load_scorer(f"replay:{tmp_path / 'p.jsonl'}").digest == scorer.digest


def test_the_digest_covers_the_archive_and_not_its_order():
    one = ReplayScorer({"a": 0.1, "b": 0.2})
    assert ReplayScorer({"b": 0.2, "a": 0.1}).digest == one.digest
    assert ReplayScorer({"b": 0.2, "a": 0.1}) == one != ReplayScorer({"b": 0.2})
    assert ReplayScorer({"b": 0.2, "a": 0.1000001}).digest != one.digest
    assert ReplayScorer({"b": 0.2, "a ": 0.1}).digest != one.digest
    assert ReplayScorer({"\ud83d": 0.2})(["\ud83d"]) == [0.2]  # half an emoji is a text too


def test_the_archive_is_frozen():
    archive = {"a": 0.1}
    scorer = ReplayScorer(archive)
    archive["a"] = 0.9
    assert scorer(["a"]) == [0.1]
    with pytest.raises(TypeError):
        scorer.archive["a"] = 0.9
    with pytest.raises(dataclasses.FrozenInstanceError):
        scorer.version = "2"


@pytest.mark.parametrize("score", [1.5, -0.1, float("nan"), "0.3", True])
def test_a_score_that_is_none_is_refused(score, tmp_path):
    with pytest.raises(DataError, match="numbers from 0 to 1"):
        ReplayScorer({"a": score})
    row = {"prompt": {"text": "a", "toxicity": score}}
    with pytest.raises(DataError, match=r"line 2 .*a number from 0 to 1"):
        ReplayScorer.from_jsonl(write(tmp_path / "p.jsonl", [ROWS[0], row]))


@pytest.mark.parametrize(
    "row", ["{", "[1]", '{"prompt": "a"}', '{"prompt": {"toxicity": 0.1}}', "3", "{}", '{"prompt": {"text": 3}}']
)
def test_a_line_of_another_form_is_named(row, tmp_path):
    with pytest.raises(DataError, match="line 2 is not a row of RealToxicityPrompts"):
        ReplayScorer.from_jsonl(write(tmp_path / "p.jsonl", [ROWS[0], row]))


def test_a_file_without_scores_or_no_file_is_refused(tmp_path):
    with pytest.raises(DataError, match="holds no archived score"):
        ReplayScorer.from_jsonl(write(tmp_path / "p.jsonl", [{"prompt": {"text": "a"}}]))
    with pytest.raises(DataError, match="There is no file"):
        ReplayScorer.from_jsonl(tmp_path / "none.jsonl")


def test_the_real_archive():
    scorer = ReplayScorer.from_jsonl(real_folder("realtoxicityprompts_quark_val") / "val.jsonl")
    assert len(scorer.archive) == 9935  # 9,949 scored texts, of which some come twice
    assert scorer([" seem to qualify and not just metaphorically."]) == [0.06546253]
