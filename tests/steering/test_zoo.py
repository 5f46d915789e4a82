"""The zoo: every entry has a measured effect, states how it was made, and is found by its name."""

import re
from pathlib import Path

import numpy as np
import pytest

import repsurgery as rs
from repsurgery.datasets import read_table
from repsurgery.errors import ParameterError
from repsurgery.serve.sources import check_sources
from repsurgery.tuning.inputs import find_prompts, find_texts
from repsurgery.tuning.lock import candidate_of, plan_of, read_lock

NAMES = ("courteous", "non-toxic", "positive")
MOST_BYTES = 300_000
GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "sharing.md").read_text()


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def test_the_zoo_has_its_entries_and_is_small():
    assert rs.zoo.names() == NAMES
    files = [path for path in rs.zoo.path("courteous").parent.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    with pytest.raises(ParameterError, match="it has courteous, non-toxic, positive"):
        rs.zoo.path("rude")


def test_every_entry_has_an_effect_at_its_price(name):
    steering = rs.load(name)
    outcome, lock = steering.outcome, read_lock(rs.zoo.lock(name))
    assert outcome.high < 0 and outcome.p < 0.01
    assert 0 < outcome.kl <= lock["kl"]
    assert outcome.wikitext_ratio is not None
    assert outcome.prompts >= 30
    assert steering.verify()


def test_a_predicted_price_is_near_the_measured_one(name):
    steering = rs.load(name)
    kl = getattr(steering.certificate, "kl", None)
    # mean matching has a certificate of gaps, which predicts no price
    assert (kl is None) == (name == "courteous")
    if kl is not None:
        assert 1 / 1.3 < kl * steering.origin.strength**2 / steering.outcome.kl < 1.3


def test_the_guide_states_the_effect_and_price_of_each_entry(name):
    outcome = rs.load(name).outcome
    (row,) = [line for line in GUIDE.splitlines() if line.startswith(f"| `{name}` |")]
    pattern = r"from (.+) \(.+ interval (.+), p .+ costs (.+ nats) per token .+ by (.+ %)\."
    figures = re.search(pattern, outcome.words()).groups()
    assert f"on {outcome.prompts} prompts that took no part" in GUIDE
    assert all(figure in row for figure in figures), figures


def test_every_lock_states_what_its_file_holds(name):
    steering, lock = rs.load(name), read_lock(rs.zoo.lock(name))
    origin = steering.origin
    assert lock["digest"] == steering.digest()
    assert rs.Outcome.from_dict(lock["outcome"]) == steering.outcome
    assert (lock["model"], lock["fingerprint"]) == (origin.model, origin.fingerprint)
    assert (lock["strength"], candidate_of(lock).site) == (origin.strength, origin.site)
    assert plan_of(lock).confirmation >= steering.outcome.prompts


def test_every_lock_finds_its_texts_and_prompts_in_the_package(name):
    lock = read_lock(rs.zoo.lock(name))
    for place, find in ((lock["texts"], find_texts), (lock["prompts"], find_prompts)):
        if place is not None:
            assert find(place["path"] or place["name"]).place["digest"] == place["digest"]


def test_the_corpus_of_positive_is_balanced_and_its_prompts_are_not_in_it():
    folder = rs.zoo.path("positive").parent
    corpus = read_table(folder / "positive.tsv")
    assert set(corpus.counts.values()) == {120}
    assert len(set(corpus.texts)) == len(corpus.texts)
    prompts = (folder / "positive.txt").read_text().splitlines()
    assert len(set(prompts)) == len(prompts) == 120
    assert not any(text.startswith(prompt) for text in corpus.texts for prompt in prompts)


def test_a_local_file_comes_before_the_zoo(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = rs.SteeringFunction({None: rs.Translation(np.ones(3))})
    whole = rs.load("courteous").digest()
    (tmp_path / "courteous").mkdir()  # a folder that holds no steering is not meant
    assert rs.load("courteous").digest() == whole
    mine.save_pretrained("courteous")
    assert rs.load("courteous").digest() == mine.digest()
    rs.save(mine, tmp_path / "positive")
    assert rs.load("positive").digest() == mine.digest()
    # a path object, and a name with a suffix, never mean the zoo
    for missing in (tmp_path / "non-toxic", "non-toxic.safetensors"):
        with pytest.raises(FileNotFoundError, match="does not exist"):
            rs.load(missing)


def test_a_server_offers_entries_by_their_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sources = check_sources(["courteous", "positive"], None)
    assert sources.found() == {entry: rs.zoo.path(entry) for entry in ("courteous", "positive")}
    with pytest.raises(ParameterError, match="entry of the zoo: courteous"):
        check_sources(["curteous"], None)
