"""Every family keeps the same promises; docs print this file's outcome as the conformance matrix."""

import numpy as np
import pytest
import torch

from repsurgery import lm
from repsurgery.lm.sites.names import resolve_site
from tests.lm.tiny_models import DECODERS, FAMILIES, MIXTURES, texts, tiny_model, tiny_tokenizer
from tests.lm.tools import (
    DEPTH,
    ROUNDING,
    assert_close,
    gated,
    prompts,
    random_map,
    run,
    split_gate,
    states,
    width_at,
)

SITES = ["embeddings", "layers.0", "layers.0.attn", "layers.0.mlp", "layers.1", "final"]
POSITIONS = ["all", "generated", "prompt", "last"]
STEPS = 6

every_family = pytest.mark.parametrize("family", list(FAMILIES))
every_decoder = pytest.mark.parametrize("family", DECODERS)


def greedy(model, ids, mask, **options):
    settings = {"max_new_tokens": STEPS, "do_sample": False, "eos_token_id": None, "pad_token_id": 0, **options}
    return model.generate(ids, attention_mask=mask, **settings)


def steering_for(model, site, *, seed=0, size=0.3):
    ids, mask = prompts()
    return gated(random_map(width_at(model, site), seed=seed, size=size), split_gate(model, site, ids, mask))


@every_family
@pytest.mark.parametrize("site", SITES)
def test_the_steered_state_is_the_map_of_the_state(family, site):
    model = tiny_model(family)
    ids, mask = prompts("right")
    real = mask.bool()
    steering = gated(random_map(width_at(model, site)), split_gate(model, site, ids, mask))
    before = states(model, site, ids, mask)[real].numpy()
    with lm.steer(model, {site: steering}):
        after = states(model, site, ids, mask)[real].numpy()
    expected = steering(before)
    assert_close(after, expected, rtol=ROUNDING)
    moved = (expected != before).any(axis=1)
    assert moved.any() and not moved.all()
    assert np.array_equal(after[~moved], before[~moved])


@every_family
@pytest.mark.parametrize("site", ["layers.0", "layers.0.attn", "layers.0.mlp", "final"])
def test_padding_is_never_touched(family, site):
    model = tiny_model(family)
    for side in ("left", "right"):
        ids, mask = prompts(side)
        before = states(model, site, ids, mask)
        with lm.steer(model, {site: random_map(width_at(model, site))}):
            after = states(model, site, ids, mask)
        assert torch.equal(after[mask == 0], before[mask == 0])
        assert (after[mask == 1] != before[mask == 1]).any(dim=1).all()


@every_family
def test_layers_before_the_site_are_bit_identical(family):
    model = tiny_model(family)
    ids, mask = prompts("right")
    before = {site: states(model, site, ids, mask) for site in SITES}
    with lm.steer(model, {"layers.1": random_map(width_at(model, "layers.1"))}):
        after = {site: states(model, site, ids, mask) for site in SITES}
    for site in ("embeddings", "layers.0", "layers.0.attn", "layers.0.mlp"):
        assert torch.equal(after[site], before[site])
    assert not torch.equal(after["layers.1"], before["layers.1"])
    assert not torch.equal(after["final"], before["final"])


@every_family
def test_the_model_is_bit_identical_afterwards(family):
    model = tiny_model(family)
    ids, mask = prompts("right")
    before = run(model, ids, mask)
    attributes, parameters = set(vars(model)), {k: v.clone() for k, v in model.state_dict().items()}
    with lm.steer(model, {"final": random_map(width_at(model, "final"))}):
        assert not torch.equal(run(model, ids, mask), before)
    assert torch.equal(run(model, ids, mask), before)
    with pytest.raises(KeyboardInterrupt), lm.steer(model, {"final": random_map(width_at(model, "final"))}):
        assert not torch.equal(run(model, ids, mask), before)
        raise KeyboardInterrupt
    assert torch.equal(run(model, ids, mask), before)
    assert set(vars(model)) == attributes
    assert all(torch.equal(v, parameters[k]) for k, v in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@every_family
def test_left_and_right_padding_agree(family):
    if family not in DECODERS:
        pytest.skip("an encoder with absolute positions is only ever padded on the right")
    model = tiny_model(family)
    found = {}
    for side in ("left", "right"):
        ids, mask = prompts(side)
        base = run(model, ids, mask)[mask.bool()]
        with lm.steer(model, {"layers.0": steering_for(model, "layers.0")}):
            found[side] = run(model, ids, mask)[mask.bool()]
        assert (found[side] - base).abs().max() > 1e3 * DEPTH
    assert_close(found["left"], found["right"], rtol=DEPTH)


@every_family
def test_batch_and_single_agree(family):
    model = tiny_model(family)
    ids, mask = prompts("right")
    steering = steering_for(model, "layers.0")
    base = run(model, ids, mask)
    with lm.steer(model, {"layers.0": steering}):
        together = run(model, ids, mask)
        for i in range(len(ids)):
            n = int(mask[i].sum())
            alone = run(model, ids[i : i + 1, :n], mask[i : i + 1, :n])
            assert_close(together[i, :n], alone[0], rtol=DEPTH)
    assert (together - base)[mask.bool()].abs().max() > 1e3 * DEPTH


@every_decoder
@pytest.mark.parametrize("site", ["layers.0", "final"])
def test_cached_and_uncached_generation_agree(family, site):
    model = tiny_model(family)
    ids, mask = prompts()
    steering = steering_for(model, site, size=0.6)
    base = greedy(model, ids, mask)
    changed = False
    for positions in POSITIONS:
        with lm.steer(model, {site: steering}, positions=positions):
            cached, uncached = (greedy(model, ids, mask, use_cache=use_cache) for use_cache in (True, False))
        assert torch.equal(cached, uncached), positions
        changed |= not torch.equal(cached, base)
    assert changed


@every_decoder
def test_cached_and_uncached_scores_agree(family):
    model = tiny_model(family)
    ids, mask = prompts()
    steering = steering_for(model, "layers.0", size=0.6)
    options = {"return_dict_in_generate": True, "output_logits": True}
    base = torch.stack(greedy(model, ids, mask, **options).logits)
    for positions in POSITIONS:
        with lm.steer(model, {"layers.0": steering}, positions=positions):
            cached, uncached = (
                torch.stack(greedy(model, ids, mask, use_cache=use_cache, **options).logits)
                for use_cache in (True, False)
            )
        assert_close(cached, uncached, rtol=DEPTH)
        assert (cached - base).abs().max() > 1e3 * DEPTH, positions


@every_decoder
def test_a_greedy_loop_by_hand_equals_generate_under_steer(family):
    model = tiny_model(family)
    ids, mask = prompts()
    steering = steering_for(model, "final", size=0.6)
    with lm.steer(model, {"final": steering}):
        generated = greedy(model, ids, mask)
    for row, real in zip(ids, mask, strict=True):
        sequence = row[real.bool()][None]
        for _ in range(STEPS):
            h = states(model, "final", sequence, torch.ones_like(sequence))[:, -1]
            logits = output_layer(model, torch.from_numpy(steering(h.numpy())))
            sequence = torch.cat([sequence, logits.argmax(dim=-1, keepdim=True)], dim=1)
        assert torch.equal(sequence[0, -STEPS:], generated[ids.tolist().index(row.tolist()), -STEPS:])
    assert not torch.equal(generated, greedy(model, ids, mask))


def output_layer(model, h):
    with torch.no_grad():
        logits = model.get_output_embeddings()(h)
    cap = getattr(model.config, "final_logit_softcapping", None)
    return logits if cap is None else cap * torch.tanh(logits / cap)


@every_decoder
def test_samples_do_not_depend_on_their_batch(family):
    model, tokenizer = tiny_model(family), tiny_tokenizer()
    some = texts(3, seed=4, longest=5)
    steering = {"final": random_map(width_at(model, "final"))}
    options = {"n": 3, "max_new_tokens": 4, "seed": 7, "progress": False}
    found = {
        size: lm.generate(model, tokenizer, some, steering=steering, batch_size=size, **options) for size in (1, 9)
    }
    assert found[1] == found[9]
    assert lm.generate(model, tokenizer, some, steering=steering, **options) == found[1]
    assert lm.generate(model, tokenizer, some, **options) != found[1]
    assert lm.generate(model, tokenizer, some, steering=steering, **{**options, "seed": 8}) != found[1]


@every_family
@pytest.mark.parametrize("site", ["final", "layers.0", "layers.0.mlp"])
def test_rows_do_not_depend_on_padding_side_or_batch_size(family, site):
    model = tiny_model(family)
    some = texts(7, seed=2)
    found = [
        lm.extract(model, tiny_tokenizer(padding_side=side), some, site=site, batch_size=size, progress=False)
        for side, size in (("left", 1), ("right", 4), ("left", 7))
    ]
    for rows in found[1:]:
        assert_close(rows, found[0], rtol=DEPTH)
    assert np.abs(found[0][0] - found[0][1]).max() > 1e3 * DEPTH


@every_family
@pytest.mark.parametrize("part", ["attn", "mlp"])
def test_the_named_writer_computes_what_the_site_holds(family, part):
    model = tiny_model(family)
    site = resolve_site(model, f"layers.1.{part}")
    if site.writer is None:
        assert part == "mlp" and family in MIXTURES
        return
    ids, mask = prompts("right")
    here = states(model, f"layers.1.{part}", ids, mask)
    written = states(model, site.writer, ids, mask)
    assert torch.equal(here, written)
