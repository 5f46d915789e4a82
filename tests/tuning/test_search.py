"""What a search lets its prompts, its texts and its time decide."""

import pytest

from repsurgery import lm
from repsurgery.datasets import load_courtesy
from repsurgery.errors import FoldError, ParameterError
from repsurgery.tuning import search as search_module
from repsurgery.tuning.bench import Bench
from repsurgery.tuning.judges import judges_of
from repsurgery.tuning.search import Search
from tests.tuning.tiny import labelled, tiny_tune


def test_confirmation_prompts_are_met_by_the_winner_alone(model_folder, tmp_path, monkeypatch):
    """Until the confirmation begins no text is written on its prompts; then on these prompts and no others."""
    met, confirming, written, confirm = {False: set(), True: set()}, [False], Bench.written, Search.confirm

    def spying(self, prompts, placed, **how):
        met[confirming[0]] |= set(prompts)
        return written(self, prompts, placed, **how)

    def confirmed(self, best):
        confirming[0] = True
        self.split_seen = self.split
        splits.append(self.split)
        return confirm(self, best)

    splits = []
    monkeypatch.setattr(Bench, "written", spying)
    monkeypatch.setattr(Search, "confirm", confirmed)
    monkeypatch.setattr(search_module, "DEARER", ())
    tiny_tune(model_folder, tmp_path)
    (split,) = splits
    assert met[False] == set(split.search)
    assert met[True] == set(split.confirmation)
    assert not met[False] & met[True] and not set(split.writing) & (met[False] | met[True])


def test_without_time_one_candidate_is_raced_and_confirmed(model_folder, searched, tmp_path):
    tuned = tiny_tune(model_folder, tmp_path, minutes=0, texts=searched.folder / "texts.csv")
    measured = [row for row in tuned.record["candidates"] if row["measure"] is not None]
    assert len(measured) == 1 < sum(row["measure"] is not None for row in searched.tuned.record["candidates"])
    assert any("The time was up after 1 of" in note for note in tuned.record["notes"])
    assert tuned.record["confirmation_prompts"] > 0


def test_where_nothing_works_at_the_price_higher_ones_are_measured(model_folder, tmp_path):
    tuned = tiny_tune(model_folder, tmp_path, kl=1e-9)
    assert tuned.record["effect"]["high"] >= 0 and tuned.record["price"]["kl"] <= 1e-9
    dearer = {row["kl"]: row["measure"] for row in tuned.record["candidates"] if row["kl"] > 1e-9}
    assert sorted(dearer) == pytest.approx([0.01, 0.05, 0.2])
    # what a higher price buys
    assert dearer[max(dearer)] < tuned.record["base"]


@pytest.mark.parametrize("target", ["folder", "gguf"])
def test_an_export_limits_the_search_to_what_it_holds(model_folder, searched, tmp_path, target):
    """Of the tiny Llama, only shifts after a block fold without custom code or are control vectors."""
    model, _ = lm.load(model_folder)
    tuned = tiny_tune(model_folder, tmp_path, sites=None, export_to=target)
    site = tuned.steering.origin.site
    held = lm.export_targets(model, tuned.steering, site)[target]
    assert held.holds and held.condition == "" and site.startswith("layers.")
    assert tuned.record["exports"][target] == {"holds": True, "note": ""}
    measured = [row for row in tuned.record["candidates"] + tuned.record["compared"] if row["measure"] is not None]
    assert {row["method"] for row in measured} <= {"mean", "natural", "natural-mean", "blend"}
    assert {row["scope"] for row in measured} == {"all"}
    refused = [row for row in tuned.record["candidates"] if f"An export to {target} cannot hold it" in row["reason"]]
    assert {"leace", "mimic"} <= {row["method"] for row in refused}
    assert {"gate", "soft"} <= {row["scope"] for row in refused}
    # without the limit, what this export cannot hold is measured too
    free = [row for row in searched.tuned.record["candidates"] if row["measure"] is not None]
    assert any(row["site"] == "final" for row in free) and any(row["scope"] != "all" for row in free)


def test_a_site_that_an_export_cannot_hold_is_refused_before_anything_is_written(model_folder, tmp_path, written):
    with pytest.raises(FoldError, match=r"An export to gguf cannot hold a steering at 'final'.*repsurgery serve"):
        tiny_tune(model_folder, tmp_path, export_to="gguf")
    with pytest.raises(ParameterError, match="export_to is 'onnx'; it must be one of"):
        tiny_tune(model_folder, tmp_path, export_to="onnx")
    assert not written


def test_the_judge_sees_none_of_the_texts_of_the_fits():
    corpus = load_courtesy()
    some = corpus.where([i % 3 == 0 for i in range(len(corpus))])
    judges = judges_of(some, None, (), source="rude", target="courteous", seed=0)
    fitted = set(judges.texts.texts)
    assert 0 < len(fitted) < len(set(some.texts))
    # the labeller was trained on the texts of the fits, and the judge on the others
    assert judges.labeller.texts == len(fitted) and judges.judge.texts == len(some) - len(fitted)
    assert judges.labeller.digest != judges.judge.digest
    assert judges.facts["texts"] == len(fitted)


def test_a_scorer_is_judge_and_labeller_and_all_texts_are_fitted():
    some = labelled()
    judges = judges_of(some, "linear", (), source="high", target="low", seed=0)
    assert judges.judge is judges.labeller and judges.texts.texts == some.texts
