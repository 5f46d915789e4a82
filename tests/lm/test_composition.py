"""`after` acts like nested blocks: the first steering outside, the second inside."""

import gguf
import numpy as np
import peft
import pytest
import torch

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import ParameterError
from tests.lm.folding import dense_map, eraser, logits, same, translation
from tests.lm.tiny_models import WIDTH, tiny_model, tiny_tokenizer
from tests.lm.tools import gated, prompts, split_gate

pytestmark = pytest.mark.filterwarnings("ignore::repsurgery.errors.ExtrapolationWarning")
MAPS = {"dense": dense_map, "low rank": eraser, "translation": translation}
PROMPTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8"]


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


def pair(model, first, then, *, site="layers.0.attn", **facts):
    """Return two steerings of one site with strengths of their own."""
    origin = lm.origin_of(model, site=site, **facts)
    a, b = MAPS[first](WIDTH, seed=1), MAPS[then](WIDTH, seed=2)
    return [rs.SteeringFunction({None: m}, origin=origin.revised(strength=s)) for m, s in ((a, 2.0), (b, 0.6))]


def nested(model, a, b):
    with lm.steer(model, a), lm.steer(model, b):
        return logits(model)


@pytest.mark.filterwarnings("ignore:`lora_bias=True` was passed")
@pytest.mark.parametrize("first", MAPS)
@pytest.mark.parametrize("then", MAPS)
def test_a_composition_acts_like_nested_blocks(model, first, then, tmp_path):
    a, b = pair(model, first, then)
    expected = nested(model, a, b)
    rs.save(b.after(a), tmp_path / "both")
    both = rs.load(tmp_path / "both")
    with lm.steer(model, both):
        assert same(logits(model), expected)
    with lm.steer(model, both, strength=0.5):  # counter-check
        assert not same(logits(model), expected)
    # exports hold the same map
    assert same(logits(lm.fold(model, both)), expected)
    low = lm.to_lora(model, both, None, tmp_path / "adapter", rank=WIDTH, constant="carry")
    assert low.error < 1e-6
    assert same(logits(peft.PeftModel.from_pretrained(tiny_model("llama"), tmp_path / "adapter").eval()), expected)


def test_a_control_vector_holds_the_sum_of_shifts_at_their_strengths(model, tmp_path):
    a, b = pair(model, "translation", "translation", site="layers.1")
    lm.to_gguf(model, b.after(a), None, tmp_path / "v.gguf")
    (tensor,) = gguf.GGUFReader(tmp_path / "v.gguf").tensors
    shift = 2.0 * a.maps[None].shift + 0.6 * b.maps[None].shift
    np.testing.assert_allclose(tensor.data, shift, rtol=1e-6)


@pytest.mark.parametrize("positions", ["all", "generated", "prompt", "last"])
def test_what_is_written_is_what_nested_blocks_write(model, positions):
    tokenizer = tiny_tokenizer()
    a, b = pair(model, "dense", "low rank", site="layers.0", positions=positions)
    how = {"n": 3, "max_new_tokens": 8, "progress": False}
    with lm.steer(model, a), lm.steer(model, b):
        expected = [g.tokens for g in lm.generate(model, tokenizer, PROMPTS, **how)]
    both = b.after(a)
    assert [g.tokens for g in lm.generate(model, tokenizer, PROMPTS, steering=both, **how)] == expected
    rows = [lm.Choice(both)] * len(PROMPTS)
    assert [g.tokens for g in lm.generate(model, tokenizer, PROMPTS, steering=rows, **how)] == expected
    assert [g.tokens for g in lm.generate(model, tokenizer, PROMPTS, steering=a, **how)] != expected


def test_steerings_at_two_places_or_behind_a_gate_are_refused(model):
    a, b = pair(model, "dense", "dense")
    gate = split_gate(model, "layers.0.attn", *prompts())
    selective = gated(dense_map(WIDTH), gate).with_origin(a.origin)
    with pytest.raises(ParameterError, match="Behind a gate"):
        selective.after(a)
    other = tiny_model("llama")
    with torch.no_grad():
        other.lm_head.weight += 1
    for changed in (
        b.with_origin(site="final"),
        b.with_origin(positions="generated"),
        b.with_origin(lm.origin_of(other, site="layers.0.attn", strength=0.6)),
    ):
        with pytest.raises(ParameterError, match=r"nested blocks of lm\.steer"):
            changed.after(a)
