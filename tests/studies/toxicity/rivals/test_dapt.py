"""DAPT reads the cleanest texts of the target and nothing else."""

import numpy as np
import pytest
import torch

from repsurgery.scorers import load_scorer, score_texts
from repsurgery.studies.toxicity.decoding import adapters
from repsurgery.studies.toxicity.rivals import dapt
from tests.studies.toxicity.rivals.contexts import base, rival, rows, tiny_context


@pytest.fixture
def context(monkeypatch, tmp_path):
    monkeypatch.setattr(adapters, "LEARNING_RATE", 0.03)
    monkeypatch.setattr(adapters, "BLOCK", 16)
    return tiny_context(work=tmp_path)


def test_strength_zero_is_the_base(context):
    expected = rows(base(context))
    assert rows(rival("dapt tokens=160 scale=0", context)) == expected
    assert rows(rival("dapt tokens=160", context)) != expected


def test_the_cleanest_texts_are_read(context, monkeypatch):
    context.texts.fitted["clean"] = ["you idiot", "a good day", "what stupid people", "thank you for the tea"] * 9
    read = {}

    def noted(model, tokenizer, texts, **options):
        read["texts"] = texts
        return adapters.train_on_texts(model, tokenizer, texts, **options)

    monkeypatch.setattr(dapt, "train_on_texts", noted)
    rival("dapt tokens=64", context).prepare(progress=False)
    scores = score_texts(load_scorer("linear"), read["texts"]).scores
    texts = context.texts.fitted["clean"]
    assert sorted(read["texts"]) == sorted(texts)
    assert list(scores) == sorted(scores) != list(score_texts(load_scorer("linear"), texts).scores)


def test_training_lowers_the_loss_on_what_was_read(context):
    text = " ".join(f"w{i}" for i in np.random.default_rng(0).choice(6, size=16))
    context.texts.fitted["clean"] = [text] * 40
    one = rival("dapt tokens=640", context)
    ids = context.tokenizer([text], return_tensors="pt")["input_ids"]
    with torch.no_grad():
        before = context.model(ids, labels=ids).loss
        with one.likelihood_model() as trained:
            after = trained(input_ids=ids, labels=ids).loss
    assert after < before - 0.5
