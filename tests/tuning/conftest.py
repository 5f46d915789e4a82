"""One tiny model, what is read from it, and one finished search, for all tests of this folder."""

from types import SimpleNamespace

import pytest
import torch

from repsurgery import lm
from repsurgery.lm.policy import writing
from repsurgery.lm.twins import twins
from repsurgery.scorers.base import SCORERS
from repsurgery.tuning.bench import Bench
from repsurgery.tuning.evidence import gather
from repsurgery.tuning.prompts import split_prompts
from tests.lm.tiny_models import tiny_model, tiny_tokenizer
from tests.tuning.tiny import PLAN, PROMPTS, SITES, LetterScorer, labelled, tiny_tune, write_inputs


@pytest.fixture(autouse=True, scope="session")
def _alone():
    """Use one thread, no data of the machine, and a scorer that the command line can name."""
    torch.set_num_threads(1)
    assert "linear" in SCORERS  # the scorers of the package are known before one is added
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("REPSURGERY_DATA", raising=False)
        patch.setitem(SCORERS._own, "letters", LetterScorer)
        yield


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny_model("llama").save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def pair(model_folder):
    return twins(*lm.load(model_folder))


@pytest.fixture(scope="session")
def split():
    return split_prompts(PROMPTS, labelled().texts, PLAN, seed=0)


@pytest.fixture(scope="session")
def evidence(pair, split, tmp_path_factory):
    how = {"sites": SITES, "plan": PLAN, "seed": 0, "progress": False, "source": "high", "target": "low"}
    return gather(pair, labelled(), split.folds, LetterScorer(), work=tmp_path_factory.mktemp("evidence"), **how)


@pytest.fixture(scope="session")
def bench(pair, tmp_path_factory):
    return Bench(pair, LetterScorer(), PLAN, "mean", 0, tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="session")
def searched(model_folder, tmp_path_factory):
    """Return a finished search whose inputs are files, with what it said and what it saved."""
    folder = tmp_path_factory.mktemp("search")
    table, prompts = write_inputs(folder)
    said = []
    tuned = tiny_tune(
        model_folder, folder / "work", texts=table, prompts=prompts, scorer="letters", announce=said.append
    )
    out = folder / "lower.safetensors"
    return SimpleNamespace(tuned=tuned, folder=folder, said=said, out=out, lock=tuned.save(out))


@pytest.fixture
def written(monkeypatch):
    """Return a list that grows by the number of continuations of each call of `generate`."""
    counts, generate = [], writing.generate

    def counting(model, tokenizer, prompts, **how):
        counts.append(len(prompts) * how["n"])
        return generate(model, tokenizer, prompts, **how)

    monkeypatch.setattr(writing, "generate", counting)
    return counts
