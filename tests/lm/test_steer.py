import numpy as np
import pytest
import torch

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import ExtrapolationWarning, NonFiniteError, ParameterError, PassError, ShapeError, SiteError
from repsurgery.lm.steer.forward_context import steering_in_force
from repsurgery.lm.steer.placing import compare_weights
from repsurgery.lm.steer.row_steering import as_steering
from tests.lm.tiny_models import WIDTH, tiny_model
from tests.lm.tools import DEPTH, ROUNDING, assert_close, gated, prompts, random_map, run, split_gate, states
from tests.shown.objects import OUTCOME

SETTINGS = {"max_new_tokens": 6, "eos_token_id": None, "pad_token_id": 0}


@pytest.fixture
def model():
    return tiny_model("llama")


def steering_at(model, site, *, seed=0):
    return gated(random_map(seed=seed, size=0.6), split_gate(model, site, *prompts()))


@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": False, "num_beams": 3},
        {"do_sample": False, "num_beams": 3, "num_return_sequences": 2},
        {"do_sample": True, "num_return_sequences": 3},
        {"do_sample": True, "num_beams": 2, "top_p": 0.8},
    ],
    ids=["beams", "several beams returned", "several samples", "sampled beams"],
)
@pytest.mark.parametrize("positions", ["all", "generated", "last"])
def test_every_way_of_decoding_agrees_with_and_without_cache(model, options, positions):
    ids, mask = prompts()
    found = {}
    with lm.steer(model, {"layers.0": steering_at(model, "layers.0")}, positions=positions):
        for use_cache in (True, False):
            torch.manual_seed(0)
            found[use_cache] = model.generate(ids, attention_mask=mask, use_cache=use_cache, **SETTINGS, **options)
    torch.manual_seed(0)
    base = model.generate(ids, attention_mask=mask, **SETTINGS, **options)
    assert torch.equal(found[True], found[False])
    assert not torch.equal(found[True], base)


@pytest.mark.parametrize("family", ["llama", "gemma2", "mistral"])
@pytest.mark.parametrize(
    "options",
    [{"cache_implementation": "static"}, {"prefill_chunk_size": 2}, {"prompt_lookup_num_tokens": 2}],
    ids=["static cache", "prompt in chunks", "candidates from the prompt"],
)
@pytest.mark.parametrize("positions", ["all", "generated", "prompt", "last"])
def test_the_kind_of_cache_changes_nothing(family, options, positions):
    model = tiny_model(family)
    ids, mask = prompts()
    if "prompt_lookup_num_tokens" in options:
        if family != "llama":
            pytest.skip("a sliding cache cannot take candidates back")
        ids, mask = ids[:1], mask[:1]
    steering = {"layers.0": steering_at(model, "layers.0")}
    plain = {"do_sample": False, **SETTINGS}
    base = model.generate(ids, attention_mask=mask, **plain)
    with lm.steer(model, steering, positions=positions):
        expected = model.generate(ids, attention_mask=mask, use_cache=False, **plain)
        found = model.generate(ids, attention_mask=mask, **plain, **options)
    assert torch.equal(found, expected)
    if positions != "last":
        assert not torch.equal(found, base)


def test_the_prompt_of_a_call_is_that_call_s_input(model):
    ids, mask = prompts()
    steering = {"layers.0": steering_at(model, "layers.0")}
    with lm.steer(model, steering, positions="prompt"):
        first = model.generate(ids, attention_mask=mask, do_sample=False, **SETTINGS)
        longer = torch.cat([mask, torch.ones(3, 6, dtype=torch.long)], dim=1)
        second = model.generate(first, attention_mask=longer, do_sample=False, **SETTINGS)
        again = model.generate(ids, attention_mask=mask, do_sample=False, **SETTINGS)
    assert torch.equal(again, first)
    whole = {"do_sample": False, **SETTINGS, "max_new_tokens": 12}
    with lm.steer(model, steering, positions="prompt"):
        at_once = model.generate(ids, attention_mask=mask, **whole)
    assert not torch.equal(at_once, second)


def test_prompts_given_as_embeddings_are_steered_alike(model):
    ids, _ = prompts()
    ids = ids[:1]
    vectors = model.get_input_embeddings()(ids).detach()
    settings = {"do_sample": False, **SETTINGS}
    for positions in ("all", "generated", "prompt", "last"):
        with lm.steer(model, {"layers.0": random_map(size=0.6)}, positions=positions):
            by_ids = model.generate(ids, attention_mask=torch.ones_like(ids), **settings)
            by_vectors = model.generate(inputs_embeds=vectors, attention_mask=torch.ones_like(ids), **settings)
        assert torch.equal(by_ids[:, ids.shape[1] :], by_vectors)


def test_a_plain_forward_is_steered_where_it_was_asked_to_be(model):
    ids, _ = prompts()
    sites = {"final": rs.Translation(np.ones(WIDTH))}
    plain = states(model, "final", ids, torch.ones_like(ids))
    for positions, touched in (("all", slice(0, 6)), ("prompt", slice(0, 6)), ("last", slice(5, 6))):
        with lm.steer(model, sites, positions=positions):
            moved = states(model, "final", ids, torch.ones_like(ids)) != plain
        expected = torch.zeros(6, dtype=torch.bool)
        expected[touched] = True
        assert torch.equal(moved.any(dim=2), expected.expand(3, 6))


def test_nested_blocks_compose_in_the_order_of_entering(model):
    ids, mask = prompts()
    f, g = random_map(seed=1), random_map(seed=2)
    h = states(model, "final", ids, mask)[mask.bool()].numpy()
    with lm.steer(model, {"final": f}), lm.steer(model, {"final": g}):
        found = states(model, "final", ids, mask)[mask.bool()].numpy()
    assert_close(found, g(f(h)), rtol=4 * ROUNDING)
    assert np.abs(f(g(h)) - g(f(h))).max() > 0.1


def test_blocks_may_be_left_in_any_order(model):
    ids, mask = prompts()
    base = run(model, ids, mask)
    first, second = (lm.steer(model, {"final": random_map(seed=seed)}) for seed in (1, 2))
    first.__enter__()
    second.__enter__()
    run(model, ids, mask)
    first.__exit__(None, None, None)
    with lm.steer(model, {"final": random_map(seed=2)}):
        run(model, ids, mask)
    ids_only = model.generate(ids, attention_mask=mask, do_sample=False, **SETTINGS)
    assert not torch.equal(run(model, ids, mask), base)
    second.__exit__(None, None, None)
    assert torch.equal(run(model, ids, mask), base)
    assert not torch.equal(model.generate(ids, attention_mask=mask, do_sample=False, **SETTINGS), ids_only)
    assert "generate" not in vars(model) and steering_in_force(model) == []


def test_several_sites_are_steered_at_once(model):
    ids, mask = prompts()
    both = {"layers.0.mlp": random_map(seed=1), "final": random_map(seed=2)}
    with lm.steer(model, {"layers.0.mlp": both["layers.0.mlp"]}):
        h = states(model, "final", ids, mask)[mask.bool()].numpy()
    with lm.steer(model, both):
        found = states(model, "final", ids, mask)[mask.bool()].numpy()
    assert_close(found, both["final"](h), rtol=ROUNDING)


def test_strength_is_the_geodesic(model):
    ids, mask = prompts()
    m = random_map()
    h = states(model, "final", ids, mask)[mask.bool()].numpy()
    with lm.steer(model, {"final": m}, strength=0.3):
        found = states(model, "final", ids, mask)[mask.bool()].numpy()
    assert_close(found, 0.7 * h + 0.3 * m(h), rtol=ROUNDING)
    with lm.steer(model, {"final": m}, strength=0.0):
        assert_close(states(model, "final", ids, mask)[mask.bool()], h, rtol=ROUNDING)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_models_of_other_dtypes_keep_their_dtype(dtype):
    model = tiny_model("llama", dtype=dtype)
    ids, mask = prompts()
    m = random_map()
    h = states(model, "final", ids, mask)[mask.bool()]
    with lm.steer(model, {"final": m}):
        found = states(model, "final", ids, mask)[mask.bool()]
        assert model.generate(ids, attention_mask=mask, do_sample=False, **SETTINGS).shape == (3, 12)
    assert found.dtype == dtype
    assert_close(found.double(), m(h.double().numpy()), rtol=max(torch.finfo(dtype).eps, 1e-14))


def test_an_estimator_steers_through_its_gate(model):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, WIDTH)) + np.repeat([[0.0], [0.4]], 30, axis=0)
    estimator = rs.MeanMatching(source=0, target=1, gate="nearest-mean").fit(X, np.repeat([0, 1], 30))
    ids, mask = prompts()
    h = states(model, "final", ids, mask)[mask.bool()].numpy()
    with lm.steer(model, {"final": estimator}):
        through_gate = states(model, "final", ids, mask)[mask.bool()].numpy()
    with lm.steer(model, {"final": estimator.map_}):
        everywhere = states(model, "final", ids, mask)[mask.bool()].numpy()
    assert_close(through_gate, estimator.transform(h), rtol=ROUNDING)
    assert_close(everywhere, estimator.map_(h), rtol=ROUNDING)
    assert not np.array_equal(through_gate, everywhere)


def test_a_module_called_on_its_own_is_steered_whole(model):
    h = torch.randn(2, 3, WIDTH)
    with torch.no_grad():
        before = model.model.norm(h)
        with lm.steer(model, {"final": rs.Translation(np.ones(WIDTH))}):
            assert torch.equal(model.model.norm(h), before + 1)
        for positions in ("prompt", "last", "generated"):
            # the way out is named: no position can be known outside a pass
            with (
                pytest.raises(PassError, match=r"called on its own.*positions='all'"),
                lm.steer(model, {"final": rs.Translation(np.ones(WIDTH))}, positions=positions),
            ):
                model.model.norm(h)


def test_gradients_flow_through_steering(model):
    ids, mask = prompts()
    m = random_map()
    with lm.steer(model, {"final": m}):
        model(input_ids=ids, attention_mask=mask).logits.sum().backward()
    steered = model.model.norm.weight.grad.clone()
    model.zero_grad()
    model(input_ids=ids, attention_mask=mask).logits.sum().backward()
    assert torch.isfinite(steered).all()
    assert not torch.equal(steered, model.model.norm.weight.grad)


def test_nothing_is_left_behind_when_a_site_is_wrong(model):
    for sites in ({"final": random_map(), "layers.9": random_map()}, {"final": random_map(), "layers.0": "rude"}):
        with pytest.raises((SiteError, ParameterError)), lm.steer(model, sites):
            pass
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert "generate" not in vars(model)


def test_a_map_of_the_wrong_width_is_refused_before_anything_runs(model):
    with (
        pytest.raises(ShapeError, match="8 features; LlamaForCausalLM has 16"),
        lm.steer(model, {"final": random_map(8)}),
    ):
        pass


def test_a_module_of_another_width_is_refused_when_it_runs(model):
    ids, mask = prompts()
    with lm.steer(model, {"model.layers.0.mlp.gate_proj": random_map()}), pytest.raises(ShapeError, match="has 32"):
        run(model, ids, mask)


def test_a_map_too_strong_for_the_dtype_says_so_and_the_model_recovers():
    model = tiny_model("llama", dtype=torch.float16)
    ids, mask = prompts()
    before = run(model, ids, mask)
    with pytest.raises(NonFiniteError, match=r"'layers\.0'.*Lower the strength"):  # noqa: SIM117 - the order is the point
        with lm.steer(model, {"layers.0": rs.Translation(np.full(WIDTH, 1e6))}):
            run(model, ids, mask)
    assert torch.equal(run(model, ids, mask), before)


@pytest.mark.parametrize("sites", [{}, "final", None])
def test_sites_must_be_a_mapping(model, sites):
    with pytest.raises(ParameterError, match="mapping such as"), lm.steer(model, sites):
        pass


@pytest.mark.parametrize("strength", [float("nan"), "strong", True])
def test_strength_must_be_a_number(model, strength):
    with pytest.raises(ParameterError, match="strength"), lm.steer(model, {"final": random_map()}, strength=strength):
        pass


def test_a_strength_beyond_the_map_warns(model):
    with pytest.warns(ExtrapolationWarning), lm.steer(model, {"final": random_map()}, strength=1.5):
        run(model, *prompts())


def test_a_measured_strength_beyond_the_map_does_not_warn(model):
    """Warnings are errors here; up to twice the measured strength there is none, at any positions."""
    function = as_steering(random_map()).with_origin(lm.origin_of(model, site="final", strength=1.5))
    measured = function.with_outcome(OUTCOME)
    (known,) = compare_weights(model, [lm.Placement(measured, "final")])
    for one, how in ((measured, {}), (known, {}), (measured, {"strength": 3.0}), (measured, {"positions": "last"})):
        with lm.steer(model, one, **how):
            run(model, *prompts())
    for changed, how in ((measured, {"strength": 3.1}), (function, {})):
        with pytest.warns(ExtrapolationWarning), lm.steer(model, changed, **how):
            run(model, *prompts())


def test_an_encoder_is_steered_in_a_plain_forward():
    model = tiny_model("bert")
    ids, mask = prompts("right")
    base = run(model, ids, mask)
    with lm.steer(model, {"layers.1.attn": random_map()}):
        steered = run(model, ids, mask)
    assert (steered - base)[mask.bool()].abs().max() > 1e3 * DEPTH
    assert torch.equal(run(model, ids, mask), base)


def test_ctrl_c_inside_a_pass_leaves_no_stale_positions(model):
    ids, mask = prompts()

    def interrupt(module, args):
        raise KeyboardInterrupt

    with lm.steer(model, {"final": rs.Translation(np.ones(WIDTH))}):
        handle = model.model.layers[1].register_forward_pre_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.generate(ids, attention_mask=mask, do_sample=False, **SETTINGS)
        handle.remove()
        steered = run(model, ids, mask)
    with lm.steer(model, {"final": rs.Translation(np.ones(WIDTH))}):
        assert torch.equal(run(model, ids, mask), steered)
