"""DeStein: its step by hand, what it keeps and what cancels in it, and the states of its pairs."""

import math

import numpy as np
import pytest
import torch

from repsurgery.errors import LabelWarning
from repsurgery.studies.toxicity.decoding.module_hooks import head_sites, pooled_states
from repsurgery.studies.toxicity.rivals.destein import last_eight, prefixed, turned
from tests.lm.tiny_models import tiny_model
from tests.studies.toxicity.rivals.contexts import rival, rows, taught_context, tiny_context


@pytest.fixture
def drawn():
    torch.manual_seed(0)
    return torch.randn(2, 5, 12), torch.randn(12)


def test_two_heads_by_hand():
    # (3, 4) has cosine .6 with its direction and becomes (.6, .8) − .5 · 1.6 · (1, 0); the other head has cosine 0
    found = turned(
        torch.tensor([3.0, 4.0, 0.0, 2.0]), torch.tensor([7.0, 0.0, 0.5, 0.0]), heads=2, alpha=0.5, together=True
    )
    one, other = [v / math.sqrt(0.68) for v in (-0.2, 0.8)], [v / math.sqrt(1.25) for v in (-0.5, 1.0)]
    expected = torch.tensor([*one, *other]) * math.sqrt(29 / 2)
    torch.testing.assert_close(found, expected)


def test_the_length_of_all_heads_together_is_kept(drawn):
    x, d = drawn
    y = turned(x, d, heads=3, alpha=0.45, together=True)
    torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1))
    # as released, the heads get equal lengths
    lengths = y.unflatten(-1, (3, 4)).norm(dim=-1)
    torch.testing.assert_close(lengths, lengths[..., :1].expand_as(lengths))


def test_each_head_can_keep_its_length(drawn):
    x, d = drawn
    one, other = (turned(x, d, heads=3, alpha=0.45, together=t).unflatten(-1, (3, 4)) for t in (True, False))
    torch.testing.assert_close(other.norm(dim=-1), x.unflatten(-1, (3, 4)).norm(dim=-1))
    # the heads are turned alike
    torch.testing.assert_close(torch.cosine_similarity(one, other, dim=-1), torch.ones(2, 5, 3))


def test_only_as_released_does_a_small_alpha_matter(drawn):
    x, d = drawn
    torch.testing.assert_close(turned(x, d, heads=3, alpha=1e-7, together=False), x)
    assert (turned(x, d, heads=3, alpha=1e-7, together=True) - x).abs().max() > 0.1


def test_both_forms_share_their_directions(tmp_path):
    context = tiny_context(work=tmp_path)
    one, other = rival("destein", context), rival("destein-per-head", context)
    assert one.part_identity("directions") == other.part_identity("directions")
    assert rows(one) != rows(other)


def test_the_accuracy_of_a_probe_cancels(drawn):
    x, d = drawn
    accuracy = torch.tensor([0.5, 0.75, 1.0]).repeat_interleave(4)
    torch.testing.assert_close(
        turned(x, d * (1 + accuracy), heads=3, alpha=0.45, together=True),
        turned(x, d, heads=3, alpha=0.45, together=True),
    )


def test_a_larger_alpha_turns_every_head_further_away(drawn):
    x, d = drawn
    cosines = [
        torch.cosine_similarity(
            turned(x, d, heads=3, alpha=alpha, together=True).unflatten(-1, (3, 4)), d.unflatten(-1, (3, 4)), dim=-1
        )
        for alpha in (0.1, 0.45, 2.0)
    ]
    assert (cosines[0] > cosines[1]).all() and (cosines[1] > cosines[2]).all()


def test_zeros_stay_finite():
    assert not turned(torch.zeros(2, 4), torch.zeros(4), heads=2, alpha=0.45, together=True).any()
    assert torch.isfinite(turned(torch.zeros(2, 4), torch.ones(4), heads=2, alpha=0.45, together=True)).all()


def test_the_mean_is_over_the_last_eight_tokens():
    state = torch.arange(20.0).reshape(2, 10, 1)
    mask = torch.tensor([[1] * 10, [1] * 3 + [0] * 7])
    assert last_eight(state, mask).squeeze(1).tolist() == [5.5, 11.0]


def test_prefixes_describe_the_label():
    assert prefixed(" You fool.", "toxic").endswith("rude and toxic: You fool")
    assert prefixed("Thanks.", "courteous") == "The following text is courteous: Thanks"


def test_equal_texts_differ_by_their_prefixes_alone(tmp_path):
    # between equal texts only the prefixes differ, and between equal labels nothing does
    context = tiny_context(work=tmp_path)
    context.texts.fitted.update({label: ["w1 w2 w3", "w4 w5"] for label in context.texts.fitted})
    directions = rival("destein", context).part("directions").arrays
    assert set(directions) == {site.name for site in head_sites(context.model, method="DeStein")}
    # every word of the prefixes is unknown to the tiny tokenizer, but their numbers differ
    assert all(np.abs(d).max() > 0 for d in directions.values())


@pytest.mark.parametrize(("family", "path"), [("llama", "self_attn.o_proj"), ("gpt2", "attn.c_proj")])
def test_heads_are_read_before_the_output_projection(family, path):
    sites = head_sites(tiny_model(family), method="DeStein")
    assert len(sites) == 2 and all(site.path.endswith(path) and site.side == "input" for site in sites)


def test_the_directions_lead_from_other_texts_to_toxic_ones(tmp_path):
    context = taught_context(work=tmp_path, target="non-toxic", max_length=64)
    sites, fitted = head_sites(context.model, method="DeStein"), context.texts.fitted

    def read(label, announced):
        texts = [prefixed(text, announced) for text in fitted[label][:20]]
        return pooled_states(context.model, context.tokenizer, texts, sites, last_eight, max_length=64)

    toxic, other = read("toxic", "toxic"), read("non-toxic", "non-toxic")
    swapped = read("toxic", "non-toxic"), read("non-toxic", "toxic")
    destein = rival("destein", context)
    # the prefixes begin every text, so that they matter only where a head has read them before
    differs = 0.0
    for name, found in destein.part("directions").arrays.items():
        expected = (toxic[name] - other[name]).sum(axis=0)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
        assert np.abs(expected).max() > 0.1
        differs = max(differs, np.abs(expected - (swapped[0][name] - swapped[1][name]).sum(axis=0)).max())
    assert differs > 0.1


def test_the_model_is_turned_away_from_the_direction(tmp_path):
    context, ids, seen = taught_context(work=tmp_path), torch.tensor([[1, 5, 9, 30]]), []
    site = head_sites(context.model, method="DeStein")[0]
    direction = torch.tensor(rival("destein", context).part("directions").arrays[site.name]).unflatten(-1, (2, -1))
    for alpha in (0, 0.45, 2):
        with torch.no_grad(), rival(f"destein alpha={alpha}", context).applied():
            handle = site.module.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
            context.model(ids)
            handle.remove()
    cosines = [torch.cosine_similarity(x.unflatten(-1, (2, -1)), direction, dim=-1) for x in seen]
    assert (cosines[0] > cosines[1]).all() and (cosines[1] > cosines[2]).all()


@pytest.mark.parametrize(("labels", "named"), [(("1", "0"), "'1' or '0'"), (("rude", "LABEL_0"), "'LABEL_0'")])
def test_labels_that_are_no_words_are_warned_about(labels, named):
    with pytest.warns(LabelWarning, match=f"a text is {named}, which is not a word"):
        rival("destein", tiny_context(source=labels[0], target=labels[1]))


def test_labels_that_are_words_are_not_warned_about(recwarn):
    for source, target in (("toxic", "non-toxic"), ("very rude", "courteous"), ("unhöflich", "höflich")):
        rival("destein", tiny_context(source=source, target=target))
    assert not recwarn.list
