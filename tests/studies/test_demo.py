import math

import numpy as np
import pytest

from repsurgery.datasets import LabelledTexts
from repsurgery.errors import DataError
from repsurgery.studies.demo.run import Subject, run_demo
from repsurgery.studies.demo.scale import Scale
from tests.lm.tiny_models import WORDS, texts, tiny_model, tiny_tokenizer

SCALE = Scale(fitted=30, held_out=12, prompts=3, samples=2, tokens=5, neutral=2)


class WordScorer:
    """Score a text by the share of its words below w9; the empty text has none."""

    name, version, digest = "words", "1", "0" * 64

    def __call__(self, given):
        return [sum(len(w) == 2 for w in t.split()) / len(t.split()) if t.split() else None for t in given]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny_model("llama").save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def subject():
    rude = [f"{text} {WORDS[i % 5]}" for i, text in enumerate(texts(50, seed=1))]
    courteous = [f"{text} {WORDS[20 + i % 5]}" for i, text in enumerate(texts(50, seed=2))]
    corpus = LabelledTexts((*rude, *courteous), ("rude",) * 50 + ("courteous",) * 50, name="tiny", source="here")
    return Subject(corpus, prompts=tuple(texts(4, seed=3)), neutral=tuple(texts(3, seed=4)), scorer=WordScorer())


@pytest.fixture(scope="module")
def record(folder, subject):
    said = []
    record = run_demo(model=folder, subject=subject, scale=SCALE, progress=False, announce=said.append)
    return record, said


def test_base_and_six_configurations_are_measured(record):
    record, _ = record
    assert [o.name for o in record.outcomes] == [
        "base",
        *("MeanMatching, selective", "MeanMatching, all"),
        *("MiMiC, selective", "MiMiC, all"),
        *("LEACE, selective", "LEACE, all"),
    ]
    for o in record.outcomes:
        assert [len(row) for row in o.continuations] == [2, 2, 2]
        assert math.isfinite(o.perplexity)
        assert 0 <= o.read_as_source <= 1
        assert o.steered == {"none": 0.0, "selective": o.read_as_source, "all": 1.0}[o.scope]
        assert (o.kl == 0) == (o.scope == "none")
    assert record.outcomes[0].continuations != record.outcomes[2].continuations


def test_certificates_hold_on_fitted_rows_and_are_measured_on_held_out_ones(record):
    record, _ = record
    assert [(c.method, c.scope) for c in record.certificates] == [
        *(("MeanMatching", "selective"), ("MeanMatching", "all")),
        *(("MiMiC", "selective"), ("MiMiC", "all")),
        ("LEACE", "all"),
    ]
    for c in record.certificates:
        pair = next(iter(c.fitted.by_source.values()))
        assert c.fitted.mean_gap < 1e-9 < pair.mean_gap_before
        assert c.held_out.mean_gap > 1e-3
        assert pair.rows_source == 30
        assert next(iter(c.held_out.by_source.values())).rows_source == 12


def test_clouds_show_the_held_out_rows_along_the_mean_difference(record):
    record, _ = record
    before = record.clouds[0]
    assert before.points.shape == (24, 2)
    means = {label: before.points[before.labels == label].mean(axis=0) for label in ("rude", "courteous")}
    assert means["courteous"][0] > means["rude"][0]
    assert len(record.clouds) == 7


def test_every_step_is_announced_and_timed(record):
    record, said = record
    steps, configurations = [step for step in said if "/7 " not in step], [step for step in said if "/7 " in step]
    assert list(record.seconds) == steps
    assert len(steps) == 4
    assert sorted(step[0] for step in configurations) == list("1234567")
    assert all(seconds >= 0 for seconds in record.seconds.values())


def test_equal_seeds_give_equal_texts(record, folder, subject):
    again = run_demo(model=folder, subject=subject, scale=SCALE, progress=False)
    assert [o.continuations for o in again.outcomes] == [o.continuations for o in record[0].outcomes]
    assert np.array_equal(again.clouds[-1].points, record[0].clouds[-1].points)


def test_a_corpus_too_small_for_the_scale_is_refused(folder, subject):
    with pytest.raises(DataError, match="Choose a smaller scale"):
        run_demo(model=folder, subject=subject, scale=Scale(45, 12, 1, 1, 1, 1), progress=False)
