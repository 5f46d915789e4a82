"""Adapters are trained on joined texts, and decided by their seed."""

import numpy as np
import pytest

from repsurgery.studies.toxicity.decoding import adapters
from repsurgery.studies.toxicity.decoding.adapters import adapter_arrays, train_on_texts, with_adapters
from repsurgery.studies.toxicity.decoding.parts import Workshop
from tests.lm.tiny_models import texts, tiny_model, tiny_tokenizer


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(adapters, "LEARNING_RATE", 0.03)
    monkeypatch.setattr(adapters, "BLOCK", 8)


def trained(work, seed):
    how = {"tokens": 96, "seed": seed, "label": "an adapter", "workshop": Workshop(work / "state", progress=False)}
    facts, arrays = train_on_texts(tiny_model("llama"), tiny_tokenizer(), texts(40, seed=1), **how)
    assert facts["steps"] == 3  # of four blocks of eight tokens each
    return arrays


def differ(one, other):
    return any(not np.array_equal(one[name], other[name]) for name in one)


def test_the_seed_decides_new_adapters():
    first, again, other = (
        adapter_arrays(with_adapters(tiny_model("llama"), {"new": None}, seed=seed), "new") for seed in (0, 0, 1)
    )
    assert differ(first, other) and not differ(first, again)


def test_the_seed_decides_the_order_of_the_texts(tmp_path, monkeypatch):
    # every training starts from the same adapter
    monkeypatch.setattr(adapters, "with_adapters", lambda model, named, *, seed: with_adapters(model, named, seed=0))
    first, again, other = (trained(tmp_path, seed) for seed in (0, 0, 1))
    # another order within a batch would only change the rounding
    assert max(np.abs(first[name] - other[name]).max() for name in first) > 1e-3 and not differ(first, again)


def test_texts_are_joined_by_the_end_token():
    tokenizer, lines = tiny_tokenizer(), ["w1 w2", "w3 w4 w5", "w6 w7 w8 w9"]
    ids = [tokenizer(line, add_special_tokens=False)["input_ids"] for line in lines]
    end = tokenizer.eos_token_id
    blocks = adapters._blocks(tiny_model("llama"), tokenizer, lines, 100)
    assert blocks.tolist() == [[*ids[0], end, *ids[1], end, ids[2][0]]]
