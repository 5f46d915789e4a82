"""Ranks of a torchrun job read what one process reads."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from repsurgery import ClassMoments, lm
from repsurgery.errors import EngineError, LabelError, SiteError
from repsurgery.scale import class_moments
from tests.lm.tiny_models import tiny_model, tiny_tokenizer
from tests.scale.checks import assert_equal_bits, assert_exact
from tests.scale.reading import LABELS, TEXTS

ROOT = Path(__file__).parents[2]
OPTIONS = {"batch_size": 4, "progress": False}


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


def torchrun(*words, cwd=ROOT):
    job = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*job, *words], env=env, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Return the folder of one job of two ranks that does everything the tests ask about."""
    folder = tmp_path_factory.mktemp("ranks")
    torchrun(ROOT / "tests" / "scale" / "reading_job.py", folder)
    return folder


def told(job):
    return [json.loads((job / f"told-{rank}.json").read_text()) for rank in range(2)]


def found_by(job, name, site):
    ranks = [ClassMoments.load(job / f"{name}-{site}-{rank}.safetensors") for rank in range(2)]
    assert_equal_bits(*ranks)
    return ranks[0]


@pytest.mark.parametrize(("name", "pooling"), [("last", "last"), ("all", "all")])
def test_ranks_read_what_one_process_reads(job, model, tokenizer, name, pooling):
    sites = lm.site_names(model)
    wanted = lm.class_moments(model, tokenizer, TEXTS, LABELS, sites=sites, pooling=pooling, **OPTIONS)
    assert len(sites) == 8
    for site in sites:
        assert_exact(found_by(job, name, site), wanted[site])


def test_other_batches_would_not_give_the_same_digits(model, tokenizer):
    """Why texts are dealt out in batches: padded otherwise, the states of a float32 model are rounded otherwise."""
    options = {"sites": ["final"], "progress": False}
    wanted = lm.class_moments(model, tokenizer, TEXTS, LABELS, batch_size=4, **options)["final"]
    dealt = [
        lm.class_moments(model, tokenizer, TEXTS[r::2], LABELS[r::2], batch_size=4, **options)["final"]
        for r in range(2)
    ]
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_exact(dealt[0] + dealt[1], wanted)


def test_each_batch_is_read_once_for_all_sites(job):
    assert [ranks["passes"] for ranks in told(job)] == [5, 5]


def test_a_rank_without_texts_gets_the_result_too(job, model, tokenizer):
    wanted = lm.class_moments(model, tokenizer, TEXTS[:1], LABELS[:1], sites=["final"], **OPTIONS)
    assert_exact(found_by(job, "one", "final"), wanted["final"])


def test_ranks_go_on_where_they_stopped(job, model, tokenizer):
    assert [ranks["passes again"] for ranks in told(job)] == [5 - 2, 5 - 2]
    wanted = lm.class_moments(model, tokenizer, TEXTS, LABELS, sites=["layers.0"], **OPTIONS)
    assert_exact(found_by(job, "again", "layers.0"), wanted["layers.0"])


@pytest.mark.parametrize(
    ("case", "kind", "words"),
    [
        ("no group", "EngineError", "init_process_group"),
        ("site", "SiteError", "layers.7"),
        ("labels", "LabelError", "one label per row"),
        ("texts", "ParameterError", "pass all texts to every rank"),
        ("models", "ParameterError", "Load the same model"),
    ],
)
def test_every_rank_refuses_before_it_reads(job, case, kind, words):
    for ranks in told(job):
        assert ranks[case][0] == kind
        assert words in ranks[case][1]
        assert ranks[case][2] == 0


def test_without_a_group_it_is_one_process(model, tokenizer, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    wanted = lm.class_moments(model, tokenizer, TEXTS, LABELS, sites=["final"], **OPTIONS)
    found = class_moments(model, tokenizer, TEXTS, LABELS, sites=["final"], **OPTIONS)
    assert_equal_bits(found["final"], wanted["final"])
    with pytest.raises(SiteError, match=r"layers\.7"):
        class_moments(model, tokenizer, TEXTS, LABELS, sites=["layers.7"], **OPTIONS)
    with pytest.raises(LabelError, match="one label per row"):
        class_moments(model, tokenizer, TEXTS, LABELS[1:], sites=["final"], **OPTIONS)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(EngineError, match="every rank would read everything"):
        class_moments(model, tokenizer, TEXTS, LABELS, sites=["final"], **OPTIONS)


def test_the_script_of_the_guide_runs(model, tokenizer, tmp_path):
    code = re.findall(r"```py\n(.*?)```", (ROOT / "docs" / "guide" / "scale.md").read_text(), flags=re.DOTALL)
    assert len(code) == 1
    (tmp_path / "read.py").write_text(code[0])
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    rows = [f"{text}\t{label}" for text, label in zip(TEXTS, LABELS, strict=True)]
    (tmp_path / "texts.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    torchrun("read.py", "model", "texts.tsv", cwd=tmp_path)
    wanted = lm.class_moments(model, tokenizer, TEXTS, LABELS, sites=lm.site_names(model), progress=False)
    for site, moments in wanted.items():
        assert_exact(ClassMoments.load(tmp_path / f"{site}.safetensors"), moments)
