"""`lm.kl_divergence` equals what two passes of the whole model give, and runs less of the model."""

import math
from dataclasses import replace

import numpy as np
import peft
import pytest
import torch
import transformers

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import NonFiniteError, ShapeError
from repsurgery.lm.score import output_layer
from tests.lm.test_passes import tuned
from tests.lm.test_soft_gate import soft_at
from tests.lm.tiny_models import DECODERS, VOCABULARY, WIDTH, texts, tiny_model, tiny_tokenizer
from tests.lm.tools import ROUNDING, assert_close, gated, prompts, random_map, split_gate, width_at

TEXTS = texts(5, seed=3)
DIRECTIONS = ["steered-base", "base-steered"]
AGREEMENT = ROUNDING
"""Error of a divergence of the order of 1: the logits of both computations are the same sums in another order."""
QUIET = {"progress": False, "batch_size": 2}


def generations_of(model, tokenizer):
    return lm.generate(model, tokenizer, TEXTS[:3], n=2, max_new_tokens=5, progress=False)


def two_passes(model, tokenizer, items, sites, *, direction="steered-base", **how):
    """Return the divergences of each text or generation from the whole model's logits, in float64, one text a pass."""
    found = []
    for item in items:
        if isinstance(item, str):
            tokens = tokenizer(item)["input_ids"]
            kept = slice(len(tokens))
        else:
            tokens = [*item.prompt_tokens, *item.tokens]
            kept = slice(len(item.prompt_tokens) - 1, len(tokens) - (not item.finished))
        ids = torch.tensor([tokens])
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        with torch.no_grad():
            base = model(**inputs).logits
            with lm.steer(model, sites, **how):
                steered = model(**inputs).logits
        pair = (steered, base) if direction == "steered-base" else (base, steered)
        log_p, log_q = (x[0, -len(tokens) :][kept].double().log_softmax(dim=-1) for x in pair)
        found += (log_p.exp() * (log_p - log_q)).sum(dim=-1).tolist()
    return found


def values(model, tokenizer, items, sites, **how):
    return [value for one in lm.kl_divergence(model, tokenizer, items, sites, **QUIET, **how) for value in one.values]


def assert_equal_to_two_passes(model, tokenizer, items, sites, **how):
    found = values(model, tokenizer, items, sites, **how)
    assert_close(found, two_passes(model, tokenizer, items, sites, **how), rtol=AGREEMENT)
    return np.array(found)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("family", DECODERS)
def test_the_divergence_is_that_of_two_whole_passes(family, direction, tokenizer, monkeypatch):
    model = tiny_model(family)
    monkeypatch.setattr(output_layer, "LOGITS", 2 * 3 * VOCABULARY)  # several pieces, the last one short
    shift = rs.Translation(np.random.default_rng(0).normal(size=width_at(model, "final")))
    for items in (TEXTS, generations_of(model, tokenizer)):
        at_final = assert_equal_to_two_passes(model, tokenizer, items, {"final": shift}, direction=direction)
        assert at_final.max() > 1e3 * AGREEMENT
        if width_at(model, "layers.0") != shift.dim:
            continue
        # the same shift somewhere else is another steering
        inner = assert_equal_to_two_passes(model, tokenizer, items, {"layers.0": shift}, direction=direction)
        assert np.abs(inner - at_final).max() > 1e3 * AGREEMENT


def test_capped_logits_are_capped(tokenizer):
    capped, free = (tiny_model("gemma2", final_logit_softcapping=cap) for cap in (0.5, None))
    found = assert_equal_to_two_passes(capped, tokenizer, TEXTS, {"final": random_map()})
    assert np.abs(found - values(free, tokenizer, TEXTS, {"final": random_map()})).max() > 1e3 * AGREEMENT


def test_the_two_directions_differ(model, tokenizer):
    one, other = (np.array(values(model, tokenizer, TEXTS, random_map(), direction=way)) for way in DIRECTIONS)
    assert np.abs(one - other).max() > 1e3 * AGREEMENT


@pytest.mark.parametrize("strength", [0.5, 1.0])
@pytest.mark.parametrize("site", ["final", "layers.0"])
def test_gates_decide_as_in_two_passes(model, tokenizer, site, strength):
    some = generations_of(model, tokenizer)
    ids, mask = prompts()
    hard = gated(random_map(), split_gate(model, site, ids, mask))
    soft = rs.SteeringFunction({1: random_map()}, soft_at(model, site)[0], (0, 1))
    for function in (hard, soft):
        found = assert_equal_to_two_passes(model, tokenizer, some, {site: function}, strength=strength)
        assert found.max() > 1e3 * AGREEMENT
        if site == "final":
            assert (found == 0).any()  # what the gate leaves alone costs nothing at all


def test_a_steering_at_final_takes_one_pass_and_the_output_layer_runs_where_it_counts(model, tokenizer):
    some = generations_of(model, tokenizer)
    counted = sum(len(g.tokens) + g.finished for g in some)
    calls = {"passes": 0, "rows": 0}

    def count(key, size):
        return lambda module, args, output: calls.__setitem__(key, calls[key] + size(output))

    handles = [
        model.model.register_forward_hook(count("passes", lambda output: 1)),
        model.lm_head.register_forward_hook(count("rows", lambda output: output.shape[:-1].numel())),
    ]
    for sites, passes in (({"final": random_map()}, 1), ({"layers.0": random_map()}, 2)):
        calls.update(passes=0, rows=0)
        lm.kl_divergence(model, tokenizer, some, sites, **QUIET)
        assert calls == {"passes": passes * math.ceil(len(some) / 2), "rows": 2 * counted}
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("site", ["final", "layers.0", "lm_head"])
@pytest.mark.parametrize("outer", ["final", "layers.1", "lm_head"])
def test_inside_a_block_the_base_is_steered_too(model, tokenizer, outer, site):
    def shift(name, size):
        return rs.Translation(size * np.arange(VOCABULARY if name == "lm_head" else WIDTH))

    sites = {site: shift(site, 0.1)}
    with lm.steer(model, {outer: shift(outer, 0.05)}) as steered:
        found = assert_equal_to_two_passes(model, tokenizer, TEXTS, sites)
        assert steered.visits[outer] > 0
    alone = assert_equal_to_two_passes(model, tokenizer, TEXTS, sites)
    if (outer, site) != ("lm_head", "lm_head"):
        assert np.abs(found - alone).max() > 10 * AGREEMENT


@pytest.mark.parametrize("kind", ["prompt", "prefix"])
def test_virtual_tokens_count_as_in_two_passes(kind, tokenizer):
    model = tuned(kind)
    found = assert_equal_to_two_passes(model, tokenizer, TEXTS, {"final": random_map()})
    bare = values(model.get_base_model(), tokenizer, TEXTS, {"final": random_map()})
    assert np.abs(found - bare).max() > 1e3 * AGREEMENT


@pytest.mark.parametrize("site", ["final", "layers.0"])
def test_adapters_count_as_in_two_passes(model, tokenizer, site):
    before = values(model, tokenizer, TEXTS, {site: random_map()})
    config = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "lm_head"], init_lora_weights=False)
    wrapped = peft.get_peft_model(model, config).eval()
    found = assert_equal_to_two_passes(wrapped, tokenizer, TEXTS, {site: random_map()})
    assert np.abs(found - before).max() > 1e3 * AGREEMENT


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_head_of_several_layers_runs_whole(family, tokenizer):
    found = assert_equal_to_two_passes(tiny_model(family), tokenizer, TEXTS, {"final": random_map()})
    assert found.max() > 1e3 * AGREEMENT


def test_logits_that_the_model_scales_are_scaled(tokenizer):
    # Cohere multiplies its logits and is not in the table of families
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": 32, "initializer_range": 0.3}
    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = transformers.CohereConfig(**sizes, **ends, num_hidden_layers=2, num_attention_heads=2, logit_scale=0.25)
    model = transformers.CohereForCausalLM(config).eval()
    found = assert_equal_to_two_passes(model, tokenizer, TEXTS, {"model.norm": random_map()})
    model.logit_scale = 1.0
    assert np.abs(found - values(model, tokenizer, TEXTS, {"model.norm": random_map()})).max() > 1e3 * AGREEMENT


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_states_wider_than_the_weights_enter_the_output_layer(dtype, tokenizer):
    # Mamba keeps its residual stream in float32
    torch.manual_seed(0)
    config = transformers.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, state_size=4, num_hidden_layers=2, pad_token_id=0, bos_token_id=1
    )
    model = transformers.MambaForCausalLM(config).to(dtype).eval()
    found = values(model, tokenizer, TEXTS, {"final": random_map()})
    # logits of bfloat16 have 8 bits, and the products of the two computations are added in different orders
    rtol = AGREEMENT if dtype is torch.float32 else 2.0**-7
    assert_close(found, two_passes(model, tokenizer, TEXTS, {"final": random_map()}), rtol=rtol)
    assert max(found) > 10 * rtol


def test_a_generation_without_steps_has_no_values(model, tokenizer):
    some = generations_of(model, tokenizer)
    empty = replace(some[0], text="", tokens=(), finished=False)
    ids, mask = prompts()
    for function in (random_map(), gated(random_map(), split_gate(model, "final", ids, mask))):
        for positions in ("all", "last"):
            found = lm.kl_divergence(model, tokenizer, [empty], {"final": function}, positions=positions, **QUIET)
            assert [one.values for one in found] == [()]


@pytest.mark.parametrize("site", ["final", "model.norm"])
def test_logits_beyond_the_number_range_are_refused(site):
    # one pass, and two
    model, tokenizer = tiny_model("llama", dtype=torch.float16), tiny_tokenizer()
    with pytest.raises(NonFiniteError, match=r"output layer. Lower the strength"):
        lm.kl_divergence(model, tokenizer, TEXTS, {site: rs.Translation(np.full(WIDTH, 6e4))}, **QUIET)
    with pytest.raises(NonFiniteError, match=r"beyond torch.float16.*Lower the strength"):
        lm.kl_divergence(model, tokenizer, TEXTS, {site: rs.Translation(np.full(WIDTH, 7e4))}, **QUIET)


@pytest.mark.parametrize("site", ["final", "layers.0"])
def test_a_steering_of_another_width_is_refused_before_the_model_runs(model, tokenizer, site):
    model.register_forward_pre_hook(lambda *_: pytest.fail("the model ran"))
    with pytest.raises(ShapeError, match="has 5 features"):
        lm.kl_divergence(model, tokenizer, TEXTS, {site: random_map(5)}, **QUIET)
