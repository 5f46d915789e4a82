"""Linear-AcT: its maps against least squares of sorted values, its range, and the order of its fits."""

from functools import partial

import numpy as np
import pytest
import torch

from repsurgery.studies.toxicity.decoding.module_hooks import hooked, pooled_states, token_mean
from repsurgery.studies.toxicity.rivals.linear_act import fit_in_order, norm_sites, transport, transported
from tests.lm.tiny_models import texts, tiny_model, tiny_tokenizer
from tests.studies.toxicity.rivals.contexts import rival, taught_context


def test_the_map_is_least_squares_of_sorted_values():
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(20, 5)), rng.gamma(2.0, size=(20, 5))
    slope, intercept, low, high = transport(source, target)
    for j in range(5):
        expected = np.polyfit(np.sort(source[:, j]), np.sort(target[:, j]), 1)
        np.testing.assert_allclose([slope[j], intercept[j]], expected, rtol=1e-5, atol=1e-6)
        # the pairing is of sorted values, not of rows
        assert abs(np.polyfit(source[:, j], target[:, j], 1)[0] - slope[j]) > 0.1
    np.testing.assert_array_equal(low, source.min(axis=0).astype(np.float32))
    np.testing.assert_array_equal(high, source.max(axis=0).astype(np.float32))


def test_two_values_by_hand():
    # 0 and 2 go to 1 and 5: x ↦ 2 x + 1 inside of (0, 2); what is constant in the source is shifted by 4 − 3
    maps = torch.tensor(transport(np.array([[2.0, 3.0], [0.0, 3.0]]), np.array([[1.0, 5.0], [5.0, 3.0]])))
    assert maps[:2].tolist() == [[2.0, 1.0], [1.0, 1.0]]
    state = torch.tensor([[1.0, 3.0], [0.0, 3.0], [2.0, 1.0], [5.0, 9.0]])
    assert transported(state, maps, 1.0)[:, 0].tolist() == [3.0, 0.0, 2.0, 5.0]
    assert transported(state, maps, 0.5)[:, 0].tolist() == [2.0, 0.0, 2.0, 5.0]
    assert torch.equal(transported(state, maps, 1.0)[:, 1], state[:, 1])


@pytest.mark.parametrize(
    ("family", "norms"),
    [
        ("llama", {"input_layernorm", "post_attention_layernorm"}),
        ("qwen3", {"input_layernorm", "post_attention_layernorm"}),
        ("gpt2", {"ln_1", "ln_2"}),
        ("gemma2", {"post_attention_layernorm", "post_feedforward_layernorm"}),
        ("gemma3", {"post_attention_layernorm", "post_feedforward_layernorm"}),
    ],
)
def test_the_norms_are_those_of_the_blocks(family, norms):
    paths = [site.path for site in norm_sites(tiny_model(family))]
    assert len(paths) == 4 and {path.rsplit(".", 1)[1] for path in paths} == norms


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "opt"])
def test_each_norm_is_fitted_after_those_before_it(family):
    model, tokenizer = tiny_model(family), tiny_tokenizer()
    source, target = texts(12, seed=1), texts(12, seed=2)
    sites = norm_sites(model)
    maps = fit_in_order(model, tokenizer, source, target, sites, max_length=16)
    differs = False
    for k, site in enumerate(sites):
        read = partial(pooled_states, model, tokenizer, [*source, *target], [site], token_mean, max_length=16)
        before = read()[site.name]
        with hooked({s: partial(transported, maps=torch.tensor(maps[s.name]), t=1.0) for s in sites[:k]}):
            after = read()[site.name]
        np.testing.assert_allclose(maps[site.name], transport(after[:12], before[12:]), rtol=1e-3, atol=1e-4)
        differs |= not np.allclose(maps[site.name], transport(before[:12], before[12:]), rtol=1e-3, atol=1e-3)
    assert differs


def test_a_source_equal_to_the_target_is_left_alone():
    model, same = tiny_model("llama"), texts(12)
    for slope, intercept, *_ in fit_in_order(
        model, tiny_tokenizer(), same, same, norm_sites(model), max_length=16
    ).values():
        np.testing.assert_allclose(slope, 1.0, rtol=0, atol=1e-3)
        np.testing.assert_allclose(intercept, 0.0, rtol=0, atol=1e-3)


def test_the_maps_lead_from_toxic_texts_to_others(tmp_path):
    context = taught_context(work=tmp_path)
    first, fitted = norm_sites(context.model)[0], context.texts.fitted
    read = partial(pooled_states, context.model, context.tokenizer, sites=[first], pool=token_mean, max_length=16)
    toxic, other = (read(fitted[label])[first.name] for label in ("toxic", "clean"))
    found = rival("linear-act", context).part("maps").arrays[first.name]
    np.testing.assert_allclose(found, transport(toxic, other), rtol=1e-3, atol=1e-4)
    assert np.abs(found - transport(other, toxic)).max() > 0.1
