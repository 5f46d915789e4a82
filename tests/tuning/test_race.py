import math
import sys
from dataclasses import replace

import pytest

import repsurgery as rs
from repsurgery.checkpoint import Journal
from repsurgery.datasets import Documents
from repsurgery.errors import DataError, MissingExtraError
from repsurgery.lm.policy import writing
from repsurgery.tuning.bench import HEADROOM
from repsurgery.tuning.candidates import Candidate, canonical
from repsurgery.tuning.forms import form_of
from repsurgery.tuning.race import Race
from tests.lm.tiny_models import texts
from tests.tuning.tiny import SITES, LetterScorer, tiny_tune

pytestmark = pytest.mark.filterwarnings("ignore::repsurgery.errors.ExtrapolationWarning")

SETTINGS = [
    Candidate("final", "mean", "on-policy"),
    Candidate("final", "natural", "on-policy"),
    Candidate("layers.0", "natural", "on-policy"),
]


@pytest.fixture(scope="module")
def forms(evidence):
    return [form_of(candidate, evidence) for candidate in SETTINGS]


@pytest.fixture
def make_race(bench, split, evidence):
    return lambda budget=0.1, wikitext=None, bench=bench: Race(
        bench, split.search, budget, wikitext, SITES, evidence.apart
    )


def reversed_(form):
    """Return the form of the opposite shift."""
    (m,) = form.function.maps.values()
    function = rs.SteeringFunction({None: rs.Translation(-m.bias)})
    return replace(form, function=function, candidate=replace(form.candidate, damping=1.0))


def test_the_best_is_the_one_with_the_lowest_measure_on_all_search_prompts(make_race, forms, bench, split):
    race = make_race()
    assert race.best is None
    raced = [race.run(form, stop_early=False) for form in forms]
    again = [bench.effect(split.search, one.placed) for one in raced]
    assert [one.effect for one in raced] == again
    assert race.best is min(raced, key=lambda one: one.effect.steered)
    assert len({one.effect.steered for one in raced}) > 1
    # neither a lower measure at another price nor one on fewer prompts counts
    best = race.best
    dearer = replace(best.form, candidate=replace(best.form.candidate, price=16.0))
    assert race.run(dearer, stop_early=False).effect.steered < best.effect.steered
    assert race.best is best
    fewer = replace(best, finished=False, effect=replace(best.effect, steered=0.0))
    race.raced[replace(best.form.candidate, damping=0.1)] = fewer
    assert race.best is best


def test_a_candidate_that_falls_behind_stops_early(make_race, forms, split, written):
    race = make_race()
    best = race.run(forms[1])
    assert best.finished
    before = sum(written)
    worse = race.run(reversed_(forms[1]))
    assert not worse.finished
    assert worse.effect.prompts == math.ceil(len(split.search) / 2)
    assert sum(written) - before <= worse.effect.prompts * race.bench.plan.samples
    assert worse.effect.value > best.effect.value
    assert race.best is best
    # alone it does not stop, whatever an earlier race has stored of it
    alone = make_race()
    assert alone.run(reversed_(forms[1])).finished and alone.best is not None
    # and where it has to be compared on all prompts it is finished
    assert race.run(reversed_(forms[1]), stop_early=False).finished


def test_a_candidate_that_no_strength_brings_to_the_budget_is_refused(make_race, forms, monkeypatch):
    race = make_race()
    monkeypatch.setattr(type(race.bench), "kl", lambda *args, **how: math.inf)
    with pytest.raises(DataError, match=r"No strength was found at which it costs at most 0\.1 nats"):
        race.run(forms[0])


@pytest.mark.parametrize("budget", [0.02, 0.1, 0.5])
def test_candidates_are_placed_at_the_budget_by_their_measured_price(make_race, forms, bench, split, budget):
    race = make_race(budget)
    for form in forms[:2]:
        placed, kl, ratio = race.place(form)
        assert ratio is None
        assert kl == bench.kl(split.search, placed, samples=1)
        assert 0.9 * HEADROOM * budget <= kl <= budget
        # the prediction alone would not be there
        predicted = replace(placed, strength=form.strength(HEADROOM * budget))
        assert abs(bench.kl(split.search, predicted, samples=1) / (HEADROOM * budget) - 1) > 1e-3
        half, kl, _ = race.place(replace(form, candidate=replace(form.candidate, price=0.25)))
        assert 0.9 * HEADROOM * budget / 4 <= kl <= budget / 4
        assert half.strength < placed.strength


def test_a_limit_on_wikitext_lowers_the_strength(make_race, forms, bench, tmp_path):
    documents = Documents(tuple(texts(8, seed=2, longest=40)), name="tiny", source="made for tests")
    own = replace(bench, documents=documents, work=tmp_path / "own")
    free, limited = make_race(bench=own).place(forms[1]), make_race(wikitext=1.02, bench=own).place(forms[1])
    unlimited = own.wikitext_ratio(free[0], own.plan.documents // 4)
    assert unlimited > 1.02 >= limited[2] > 1
    assert limited[2] == own.wikitext_ratio(limited[0], own.plan.documents // 4)
    assert limited[1] == own.kl(make_race().prompts, limited[0], samples=1) < free[1]
    # a limit far above costs nothing
    assert make_race(wikitext=5.0, bench=own).place(forms[1])[0].key == free[0].key


def test_what_was_measured_is_not_measured_again(make_race, forms, written):
    first = make_race()
    raced = [first.run(form) for form in forms]
    count = sum(written)
    second = make_race()
    again = [second.run(form) for form in forms]
    assert [(one.effect, one.placed.key, one.finished) for one in again] == [
        (one.effect, one.placed.key, one.finished) for one in raced
    ]
    assert sum(written) == count
    assert second.best.form is first.best.form
    # another budget is another race
    assert make_race(0.2).run(forms[0]).placed.key != raced[0].placed.key


def test_proposals_are_new_canonical_and_allowed(make_race, forms):
    race = make_race()
    for form in forms:
        race.run(form)
    found = []
    for candidate in race.proposals(lambda one: one.method != "leace"):
        found.append(candidate)
        race.raced[candidate] = race.raced[SETTINGS[0]]
        if len(found) == 20:
            break
    assert len(set(found)) == 20
    assert not set(found) & set(SETTINGS)
    assert all(one == canonical(one) and one.method != "leace" for one in found)
    # where everything is known the sampler stops
    assert list(race.proposals(lambda one: False)) == []


def test_without_optuna_the_error_names_the_extra(make_race, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'repsurgery\[tune\]'"):
        make_race()


class Stop:
    """Say lines, and press Ctrl-C at the line ``at``."""

    def __init__(self, at):
        self.lines, self._at = [], at

    def __call__(self, line):
        self.lines.append(line)
        if len(self.lines) == self._at:
            raise KeyboardInterrupt


@pytest.mark.parametrize("at", [3, 6, 9, 15])
def test_an_interrupted_search_repeats_nothing(model_folder, searched, tmp_path, written, at):
    table, prompts = searched.folder / "texts.csv", searched.folder / "prompts.txt"
    scorer, how = LetterScorer(), {"texts": table, "prompts": prompts}
    with pytest.raises(KeyboardInterrupt):
        tiny_tune(model_folder, tmp_path, scorer=scorer, announce=Stop(at), **how)
    before = sum(written)
    tuned = tiny_tune(model_folder, tmp_path, scorer=scorer, **how)
    whole, finished = sum(written), scorer.scored
    # the same result, and everything was written once: all different prompts under all different steerings
    assert tuned.steering.digest() == searched.tuned.steering.digest()
    assert without_times(tuned.record) == without_times(searched.tuned.record)
    assert whole == continuations(searched.folder / "work")
    assert 0 < before < whole
    # a third run writes and scores nothing at all
    tiny_tune(model_folder, tmp_path, scorer=scorer, **how)
    assert (sum(written), scorer.scored) == (whole, finished)


def without_times(record):
    """Return what was measured and decided; closed forms of dropped candidates may differ in their last bit."""
    rows = [
        {name: row[name] for name in ("name", "status", "reason")} if row["status"] == "dropped" else row
        for row in record["candidates"]
    ]
    return {**record, "candidates": rows, "seconds": None}


def continuations(work):
    """Return the number of continuations that are stored in a work folder."""
    return sum(len(row) for path in work.rglob("texts.jsonl") for row in rows_of(path))


def rows_of(path):
    return [occurrence for rows in Journal(path).values() for occurrence in rows]


def test_an_interruption_while_texts_are_written_repeats_no_stored_text(model_folder, tmp_path, written, monkeypatch):
    counting = writing.generate

    def interrupting(*args, **how):
        if len(written) == 7:
            raise KeyboardInterrupt
        return counting(*args, **how)

    monkeypatch.setattr(writing, "generate", interrupting)
    with pytest.raises(KeyboardInterrupt):
        tiny_tune(model_folder, tmp_path)
    monkeypatch.setattr(writing, "generate", counting)
    stored = continuations(tmp_path)
    assert stored > 0
    before = sum(written)
    tiny_tune(model_folder, tmp_path)
    # another thread may have stored what it was writing after the texts were counted
    assert sum(written) - before <= continuations(tmp_path) - stored
