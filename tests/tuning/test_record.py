import json

import pytest

from repsurgery.certificates import EffectCertificate
from repsurgery.errors import ParameterError
from repsurgery.studies.tuned.record import check_tune_record
from repsurgery.tuning.plan import Budget
from tests.tuning.tiny import PLAN, PROMPTS, tiny_tune

KEYS = {
    *("kind", "schema", "version", "model", "source", "target", "budget", "judge", "measure", "base", "steered"),
    *("effect", "price", "confirmation_prompts", "search_prompts", "writing_prompts", "samples", "tokens", "others"),
    *("chosen", "certificate", "optimism", "candidates", "compared", "pairs", "notes", "seconds", "seed", "digest"),
}


@pytest.fixture(scope="module")
def record(searched):
    return searched.tuned.record


def test_the_record_has_the_keys_of_the_contract(record):
    assert set(record) >= KEYS
    assert set(record["effect"]) == {"value", "low", "high", "p"}
    assert set(record["price"]) >= {"kl", "wikitext_ratio"}
    check_tune_record(record)


def test_the_record_is_json_without_nan(record):
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_the_figures_agree_with_each_other(record):
    effect = record["effect"]
    assert effect["value"] == pytest.approx(record["steered"] - record["base"])
    assert effect["low"] <= effect["value"] <= effect["high"]
    assert record["price"]["kl"] <= record["budget"]["kl"]
    assert record["budget"]["met"] is True
    assert record["confirmation_prompts"] == PLAN.confirmation
    optimism = record["optimism"]
    assert optimism["difference"] == pytest.approx(optimism["search"] - optimism["confirmation"])
    assert optimism["confirmation"] == effect["value"]


def test_predicted_prices_are_those_that_are_measured(searched, record):
    measured = [row for row in record["candidates"] if row["measured_kl"] is not None]
    assert {round(row["kl"] / record["budget"]["kl"], 3) for row in measured} >= {0.25, 0.5, 1.0}
    # the price of the confirmation; those of the race are of eight texts
    assert 1 / 1.3 < record["price"]["predicted_kl"] / record["price"]["kl"] < 1.3
    assert all(row["predicted_kl"] > 0 for row in measured)
    # the price grows with the square of the strength, in the prediction as in the measurement
    own = record["chosen"]
    chosen = [row for row in measured if row["name"].startswith(own["name"]) and row["scope"] == own["scope"]]
    (full, *others) = sorted(chosen, key=lambda row: -row["kl"])
    assert len(others) == 2
    for row in others:
        square = (row["strength"] / full["strength"]) ** 2
        assert row["predicted_kl"] / full["predicted_kl"] == pytest.approx(square, rel=0.2)
        assert square < 0.7
    # what `inspect` prints: the certificate's price at the strength in force
    steering = searched.tuned.steering
    if isinstance(steering.certificate, EffectCertificate):
        in_force = steering.certificate.kl * steering.origin.strength**2
        assert in_force == pytest.approx(record["price"]["predicted_kl"], rel=1e-5)


def test_one_candidate_is_chosen_and_every_other_has_a_status(record):
    rows = record["candidates"]
    (chosen,) = (row for row in rows if row["status"] == "chosen")
    assert chosen["name"] == record["chosen"]["name"]
    raced = [row for row in rows if row["status"] in ("chosen", "raced") and row["kl"] == record["budget"]["kl"]]
    assert chosen["measure"] == min(row["measure"] for row in raced)
    assert len(raced) > 3
    assert all(row["reason"] and row["measure"] is None for row in rows if row["status"] == "dropped")
    assert len({row["name"] for row in rows}) == len(rows)
    assert {row["method"] for row in record["compared"]} == {"mean", "mimic", "leace"}


def test_a_search_with_a_limit_on_wikitext_meets_it(model_folder, tmp_path):
    folder = tmp_path / "data" / "wikitext2_raw"
    folder.mkdir(parents=True)
    pages = [f" = Page {i} = \n\n {' '.join(PROMPTS[4 * i : 4 * i + 4])} \n\n" for i in range(4)]
    (folder / "wiki.test.raw").write_text("".join(pages), encoding="utf-8")
    found = tiny_tune(model_folder, tmp_path / "work", wikitext=1.01, kl=0.3, data_dir=tmp_path / "data").record
    assert found["price"]["wikitext_ratio"] <= 1.01
    assert found["price"]["kl"] <= 0.3
    assert found["budget"] == {"kl": 0.3, "wikitext": 1.01, "met": True}


@pytest.mark.parametrize("wrong", [0, -1, True, "x", float("nan"), float("inf")])
def test_budgets_that_are_none_are_refused(wrong):
    with pytest.raises(ParameterError, match=r"^kl is .*; it must be a positive number of nats"):
        Budget(wrong)
    with pytest.raises(ParameterError, match=r"^wikitext is .*; it must be a ratio of perplexities above 1"):
        Budget(0.1, False if wrong is True else wrong)
