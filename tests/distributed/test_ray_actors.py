"""Models on Ray actors give the moments of one process, and one that dies costs its chunk and no digit."""

import os

import pytest

from repsurgery import lm
from repsurgery.distributed import RayEngine, ray_class_moments
from repsurgery.errors import EngineError, LabelError, ModelError, ParameterError, SiteError, TextError
from tests.distributed.checks import assert_equal_bits, assert_exact
from tests.distributed.loading import Deadly, Logged, NeverLoaded
from tests.distributed.reading import LABELS, TEXTS
from tests.lm.tiny_models import tiny_model, tiny_tokenizer

pytest.importorskip("ray")
SITES = ["embeddings", "layers.0", "layers.1.mlp", "final"]
OPTIONS = {"sites": SITES, "batch_size": 4}


@pytest.fixture(scope="module", autouse=True)
def ray_here():
    with RayEngine(workers=2):
        yield


@pytest.fixture(scope="module")
def wanted():
    return lm.class_moments(tiny_model("llama"), tiny_tokenizer(), TEXTS, LABELS, progress=False, **OPTIONS)


def test_actors_read_what_one_process_reads(wanted, tmp_path):
    load = Logged(tmp_path / "log")
    found = ray_class_moments(load, TEXTS, LABELS, actors=2, chunks=5, **OPTIONS)
    assert len(load.passes()) == 10
    alone = ray_class_moments(load, TEXTS, LABELS, actors=1, chunks=5, **OPTIONS)
    assert list(found) == list(alone) == SITES
    for site in SITES:
        assert_exact(found[site], wanted[site])
        assert_equal_bits(found[site], alone[site])


def test_a_killed_actor_costs_nothing(wanted, tmp_path):
    calm = ray_class_moments(Logged(tmp_path / "calm"), TEXTS, LABELS, chunks=5, **OPTIONS)
    load = Deadly(tmp_path / "log", (4, 7), os.getpid())
    found = ray_class_moments(load, TEXTS, LABELS, chunks=5, **OPTIONS)
    assert len(set(load.passes())) > 2
    assert 12 <= len(load.passes()) <= 14
    for site in SITES:
        assert_exact(found[site], wanted[site])
        assert_equal_bits(found[site], calm[site])


def test_deaths_without_end_are_told(tmp_path):
    load = Deadly(tmp_path / "log", tuple(range(1, 99)), os.getpid())
    with pytest.raises(EngineError, match=r"Chunk 0 of the texts: its worker died 3 times .*memory"):
        ray_class_moments(load, TEXTS, LABELS, actors=1, chunks=5, **OPTIONS)
    assert len(load.passes()) == 3
    with pytest.raises(EngineError, match="Loading the model: its worker died 3 times"):
        ray_class_moments(NeverLoaded(os.getpid()), TEXTS, LABELS, actors=1, **OPTIONS)


def test_finished_chunks_are_kept(wanted, tmp_path):
    load = Deadly(tmp_path / "log", (5, 6, 7), os.getpid())
    options = {**OPTIONS, "actors": 1, "chunks": 5, "work_dir": tmp_path / "work"}
    with pytest.raises(EngineError, match="Chunk 2"):
        ray_class_moments(load, TEXTS, LABELS, **options)
    again = Logged(tmp_path / "again")
    found = ray_class_moments(again, TEXTS, LABELS, **options)
    assert len(again.passes()) == 10 - 4
    for site in SITES:
        assert_exact(found[site], wanted[site])


def test_a_model_by_its_folder(wanted, tmp_path):
    tiny_model("llama").save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    # more actors than cores: the third never gets a place, and nobody waits for it
    found = ray_class_moments(tmp_path, TEXTS, LABELS, actors=3, **OPTIONS)
    assert_exact(found["final"], wanted["final"])


def test_bad_input_is_told_before_anything_is_read(tmp_path):
    load = Logged(tmp_path / "log")
    cases = [
        (LabelError, "one label per row", (load, TEXTS, LABELS[1:]), {}),
        (TextError, "no texts", (load, [], []), {}),
        (SiteError, r"layers\.7", (load, TEXTS, LABELS), {"sites": ["final", "layers.7"]}),
        (TextError, "index 1", (load, ["w1", "w1 " * 70], ["a", "b"]), {}),
        (ParameterError, "pooling", (load, TEXTS, LABELS), {"pooling": "max"}),
        (ParameterError, "list such as", (load, TEXTS, LABELS), {"sites": "final"}),
        (ParameterError, "actors is 0", (load, TEXTS, LABELS), {"actors": 0}),
        (ParameterError, "chunks is 0", (load, TEXTS, LABELS), {"chunks": 0}),
        (ParameterError, "a function that returns", (tiny_model("llama"), TEXTS, LABELS), {}),
        (ModelError, "no folder", (tmp_path / "nothing", TEXTS, LABELS), {}),
        (EngineError, "Lower num_gpus", (load, TEXTS, LABELS), {"num_gpus": 64}),
    ]
    for kind, words, given, changes in cases:
        with pytest.raises(kind, match=words):
            ray_class_moments(*given, **{**OPTIONS, **changes})
    assert load.passes() == []
