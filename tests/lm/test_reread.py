from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

import repsurgery as rs
from repsurgery import lm
from repsurgery.gates import Gate
from repsurgery.gates.rules import LinearGate
from repsurgery.lm.reread import reread
from tests.lm.tiny_models import WIDTH, tiny_model, tiny_tokenizer

PROMPTS = ["w1 w2 w3", "w4", "w5 w6"]


@dataclass(frozen=True)
class Remembering(Gate):
    """The gate inside, which keeps what it decided."""

    inside: Gate
    kept: list = field(default_factory=list)
    kind = "remembering"

    @property
    def classes(self):
        return self.inside.classes

    def codes(self, X):
        self.kept.append(self.inside.codes(X))
        return self.kept[-1]

    def arrays(self):
        return self.inside.arrays()


def _steering(gate):
    rng = np.random.default_rng(1)
    return rs.SteeringFunction({"a": rs.Translation(rng.normal(size=WIDTH))}, gate, ("a", "b"))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("site", ["final", "layers.0"])
def test_rereading_repeats_the_gates_decisions(family, site):
    model, tokenizer = tiny_model(family), tiny_tokenizer()
    gate = Remembering(LinearGate(("a", "b"), np.random.default_rng(0).normal(size=(1, WIDTH)), np.zeros(1)))
    for prompt in PROMPTS:
        gate.kept.clear()
        (found,) = lm.generate(
            model,
            tokenizer,
            [prompt],
            steering={site: _steering(gate)},
            positions="generated",
            n=1,
            max_new_tokens=8,
            progress=False,
        )
        decided = np.concatenate(gate.kept).tolist()
        (read,) = reread(model, tokenizer, [found], gate=gate.inside, site=site, progress=False)
        assert list(read.codes) == decided
        assert len(decided) == len(found.tokens) + found.finished


def test_likelihoods_are_those_of_the_model_alone_whatever_the_batch():
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    gate = LinearGate(("a", "b"), np.ones((1, WIDTH)), np.zeros(1))
    found = lm.generate(model, tokenizer, PROMPTS, n=2, max_new_tokens=6, progress=False)
    together = reread(model, tokenizer, found, gate=gate, progress=False)
    for generation, read in zip(found, together, strict=True):
        tokens = [*tokenizer(generation.prompt)["input_ids"], *generation.tokens]
        with torch.no_grad():
            log_p = model(torch.tensor([tokens])).logits[0].log_softmax(dim=-1)
        start = len(tokens) - len(generation.tokens)
        expected = [log_p[i - 1, tokens[i]].item() for i in range(start, len(tokens))]
        np.testing.assert_allclose(read.values, expected, atol=1e-4)
    assert all(not module._forward_hooks for module in model.modules())


def test_a_generation_that_ended_at_once_has_one_decision_and_no_likelihood():
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    gate = LinearGate(("a", "b"), np.ones((1, WIDTH)), np.zeros(1))
    (read,) = reread(model, tokenizer, [lm.Generation("w1 w2", 0, 0, "", (), finished=True)], gate=gate, progress=False)
    assert read.values == ()
    assert len(read.codes) == 1
