"""Models on Ray actors give the moments of one process, and one that dies costs its chunk and no digit."""

import os

import pytest

from repsurgery import lm
from repsurgery.errors import EngineError, LabelError, ModelError, ParameterError, SiteError, TextError
from repsurgery.scale import RayEngine, ray_class_moments
from tests.lm.tiny_models import tiny_model, tiny_tokenizer
from tests.scale.checks import assert_equal_bits, assert_exact
from tests.scale.loading import Deadly, Logged, NeverLoaded
from tests.scale.reading import LABELS, TEXTS

pytest.importorskip("ray", reason="this engine is in the extra repsurgery[distributed]")
SITES = ["embeddings", "layers.0", "layers.1.mlp", "final"]
OPTIONS = {"sites": SITES, "batch_size": 4}


@pytest.fixture(scope="module", autouse=True)
def ray_here():
    with RayEngine(workers=2):
        yield


@pytest.fixture(scope="module")
def wanted():
    return lm.class_moments(tiny_model("llama"), tiny_tokenizer(), TEXTS, LABELS, progress=False, **OPTIONS)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return the result of two actors that live, after looking at the passes they made."""
    load = Logged(tmp_path_factory.mktemp("undisturbed") / "log")
    found = ray_class_moments(load, TEXTS, LABELS, actors=2, chunks=5, **OPTIONS)
    assert len(load.passes()) == 10
    return found


def test_actors_read_what_one_process_reads(undisturbed, wanted, tmp_path):
    alone = ray_class_moments(Logged(tmp_path / "log"), TEXTS, LABELS, actors=1, chunks=5, **OPTIONS)
    assert list(undisturbed) == list(alone) == SITES
    for site in SITES:
        assert_exact(undisturbed[site], wanted[site])
        assert_equal_bits(undisturbed[site], alone[site])


def test_a_killed_actor_costs_nothing(undisturbed, tmp_path):
    load = Deadly(tmp_path / "log", (4, 7), os.getpid())
    found = ray_class_moments(load, TEXTS, LABELS, actors=2, chunks=5, **OPTIONS)
    # two of the ten passes or four are made again: a chunk is two of them, and dies at its first or second
    assert 12 <= len(load.passes()) <= 14
    assert len(set(load.passes())) >= 3
    for site in SITES:
        assert_equal_bits(found[site], undisturbed[site])


def test_a_deadly_chunk_is_told_and_the_others_kept(wanted, tmp_path):
    load = Deadly(tmp_path / "log", (5, 6, 7), os.getpid())
    options = {**OPTIONS, "actors": 1, "chunks": 5, "work_dir": tmp_path / "work"}
    with pytest.raises(EngineError, match=r"Chunk 2 of the texts: its worker died 3 times .*memory"):
        ray_class_moments(load, TEXTS, LABELS, **options)
    assert len(load.passes()) == 7
    found = ray_class_moments(load, TEXTS, LABELS, **options)  # nothing dies at a later pass
    assert len(load.passes()) == 7 + 10 - 4
    for site in SITES:
        assert_exact(found[site], wanted[site])


def test_a_model_that_cannot_be_loaded_is_told():
    with pytest.raises(EngineError, match="Loading the model: its worker died 3 times"):
        ray_class_moments(NeverLoaded(os.getpid()), TEXTS, LABELS, actors=1, **OPTIONS)
    with pytest.raises(ModelError, match="no folder"):
        ray_class_moments("/no/such/folder", TEXTS, LABELS, actors=1, **OPTIONS)


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
        (ParameterError, "pooling", (load, TEXTS, LABELS), {"pooling": "max"}),
        (ParameterError, "list such as", (load, TEXTS, LABELS), {"sites": "final"}),
        (ParameterError, "actors is 0", (load, TEXTS, LABELS), {"actors": 0}),
        (ParameterError, "chunks is 0", (load, TEXTS, LABELS), {"chunks": 0}),
        (ParameterError, "a function that returns", (tiny_model("llama"), TEXTS, LABELS), {}),
        (EngineError, "Lower num_gpus", (load, TEXTS, LABELS), {"num_gpus": 64}),
    ]
    for kind, words, given, changes in cases:
        with pytest.raises(kind, match=words):
            ray_class_moments(*given, **{**OPTIONS, "actors": 1, **changes})
    assert load.passes() == []
