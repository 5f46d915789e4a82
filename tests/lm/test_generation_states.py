from dataclasses import replace

import numpy as np
import pytest

import repsurgery as rs
from repsurgery import lm
from repsurgery.gates import ClassifierGate
from tests.lm.tiny_models import LAYERS, WIDTH


class Noting:
    """A classifier that finds everything toxic, and keeps what it was asked about."""

    def __init__(self):
        self.met = []

    def predict(self, X):
        self.met.append(np.array(X))
        return np.array(["toxic"] * len(X))


@pytest.mark.parametrize("site", ["final", "layers.0", f"layers.{LAYERS - 1}"])
def test_states_along_a_text_are_those_that_steering_met(site, model, tokenizer):
    push = rs.Translation(5 * np.random.default_rng(0).normal(size=WIDTH))
    for prompt, seed in [("w1 w2 w3", 0), ("w4", 1), ("w5 w6 w7", 2), ("w8", 3)]:
        noting = Noting()
        steering = rs.SteeringFunction({"toxic": push}, ClassifierGate(("clean", "toxic"), noting), ("clean", "toxic"))
        options = {"n": 1, "max_new_tokens": 6, "seed": seed, "progress": False}
        found = lm.generate(model, tokenizer, [prompt], steering={site: steering}, positions="generated", **options)
        (rows,) = lm.states_along(model, tokenizer, found, site=site, progress=False)
        assert len(rows) == len(found[0].tokens) + found[0].finished
        np.testing.assert_allclose(rows, np.concatenate(noting.met), atol=2e-5)
        assert found[0].tokens != lm.generate(model, tokenizer, [prompt], **options)[0].tokens


def test_states_do_not_depend_on_their_batch(model, tokenizer):
    found = lm.generate(model, tokenizer, ["w1 w2 w3", "w4"], n=5, max_new_tokens=6, progress=False)
    one = lm.states_along(model, tokenizer, found, batch_size=1, progress=False)
    many = lm.states_along(model, tokenizer, found, batch_size=7, progress=False)
    for a, b in zip(one, many, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


@pytest.mark.parametrize("site", ["final", "layers.0"])
def test_a_cut_prompt_is_read_as_it_was_cut(site, model, tokenizer):
    noting = Noting()
    gate = ClassifierGate(("clean", "toxic"), noting)
    steering = rs.SteeringFunction({"toxic": rs.Translation(np.zeros(WIDTH))}, gate, ("clean", "toxic"))
    options = {"n": 1, "max_new_tokens": 6, "max_length": 3, "progress": False}
    found = lm.generate(
        model, tokenizer, ["w1 w2 w3 w4 w5"], steering={site: steering}, positions="generated", **options
    )
    met = np.concatenate(noting.met)
    (rows,) = lm.states_along(model, tokenizer, found, site=site, progress=False)
    np.testing.assert_allclose(rows, met, atol=2e-5)
    # one from an older file does not know its tokens, and means the whole prompt
    (whole,) = lm.states_along(model, tokenizer, [replace(found[0], prompt_tokens=())], site=site, progress=False)
    assert not np.allclose(whole, rows, atol=1e-2)
