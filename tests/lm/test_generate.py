import dataclasses
import sys

import numpy as np
import pytest
import torch

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import BatchHalvedWarning, ParameterError, TextError
from repsurgery.lm.generate import generate as generate_module
from repsurgery.lm.generate.sampling import KeyedSampling, sample_key
from tests.lm.test_row_decoder import LONG
from tests.lm.tiny_models import CONTEXT, VOCABULARY, tiny_model, tiny_tokenizer
from tests.lm.tools import random_map

PROMPTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9"]
OPTIONS = {"n": 4, "max_new_tokens": 5, "progress": False}


def test_records_come_in_order_of_prompt_and_sample(model, tokenizer):
    found = lm.generate(model, tokenizer, PROMPTS, **OPTIONS)
    assert [(g.index, g.sample) for g in found] == [(i, s) for i in range(3) for s in range(4)]
    assert [g.prompt for g in found] == [prompt for prompt in PROMPTS for _ in range(4)]
    assert all(len(g.tokens) == 5 or g.finished for g in found)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found[0].text = "changed"


def test_the_text_is_the_continuation_alone(model, tokenizer):
    for g in lm.generate(model, tokenizer, PROMPTS, **OPTIONS):
        whole = tokenizer.decode([*tokenizer(g.prompt)["input_ids"], *g.tokens], skip_special_tokens=True)
        assert g.prompt + g.text == whole


def test_texts_do_not_depend_on_longer_ones_where_rotary_embeddings_do(tokenizer, monkeypatch):
    model, prompts = tiny_model("llama", rope_parameters=LONG), ["w1 w2 w3", " ".join(["w4 w5"] * 9)]
    options = {"n": 3, "max_new_tokens": 6, "progress": False}

    def written(*some):
        return [g.tokens for g in lm.generate(model, tokenizer, some, **options) if g.prompt == prompts[0]]

    assert written(*prompts) == written(prompts[0])
    # counter-check: in one batch they do
    monkeypatch.setattr(generate_module, "rope_threshold", lambda model: float("inf"))
    assert written(*prompts) != written(prompts[0])


def test_a_prompt_s_samples_do_not_depend_on_the_other_prompts(model, tokenizer):
    together = lm.generate(model, tokenizer, PROMPTS, **OPTIONS)
    alone = lm.generate(model, tokenizer, PROMPTS[2:], **OPTIONS)
    assert [g.tokens for g in alone] == [g.tokens for g in together[8:]]
    fewer = lm.generate(model, tokenizer, PROMPTS, **{**OPTIONS, "n": 2})
    assert [g.tokens for g in fewer[:2]] == [g.tokens for g in together[:2]]


def test_samples_differ_and_so_do_equal_prompts(model, tokenizer):
    found = lm.generate(model, tokenizer, ["w1", "w1"], **{**OPTIONS, "n": 8})
    assert len({g.tokens for g in found[:8]}) > 1
    assert [g.tokens for g in found[:8]] != [g.tokens for g in found[8:]]


def test_samples_follow_the_distribution_of_the_model(model, tokenizer):
    n = 4000
    found = lm.generate(model, tokenizer, ["w1 w2"], n=n, max_new_tokens=1, top_p=1.0, batch_size=n, progress=False)
    drawn = [g.tokens[0] if g.tokens else tokenizer.eos_token_id for g in found]
    counts = np.bincount(drawn, minlength=VOCABULARY)
    with torch.no_grad():
        logits = model(torch.tensor([tokenizer("w1 w2")["input_ids"]])).logits[0, -1]
    p = logits.double().softmax(dim=0).numpy()
    chi_square = float((np.square(counts - n * p) / (n * p)).sum())
    # VOCABULARY - 1 degrees of freedom: five standard deviations above the mean
    limit = VOCABULARY + 5 * np.sqrt(2 * VOCABULARY)
    assert chi_square < limit
    uniform = float((np.square(counts - n / VOCABULARY) / (n / VOCABULARY)).sum())
    assert uniform > limit


def test_the_nucleus_holds_the_likeliest_tokens_only(model, tokenizer):
    with torch.no_grad():
        logits = model(torch.tensor([tokenizer("w1 w2")["input_ids"]])).logits[0, -1]
    order = logits.argsort(descending=True)
    p = logits.softmax(dim=0)[order].cumsum(dim=0)
    nucleus = set(order[: int((p < 0.5).sum()) + 1].tolist())
    found = lm.generate(model, tokenizer, ["w1 w2"], n=300, max_new_tokens=1, top_p=0.5, progress=False)
    drawn = {g.tokens[0] if g.tokens else tokenizer.eos_token_id for g in found}
    assert drawn <= nucleus < set(range(VOCABULARY))
    assert len(drawn) > 1


def test_a_low_temperature_is_greedy(model, tokenizer):
    found = lm.generate(model, tokenizer, PROMPTS[:1], temperature=1e-6, **OPTIONS)
    ids = torch.tensor([tokenizer(PROMPTS[0])["input_ids"]])
    greedy = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=5, pad_token_id=0)
    expected = [t for t in greedy[0, ids.shape[1] :].tolist() if t != tokenizer.eos_token_id]
    assert all(list(g.tokens) == expected for g in found)


def test_noise_belongs_to_key_and_step():
    keys = [sample_key(0, "a", 0, s) for s in range(3)]
    flat = torch.zeros(3, 50)

    def draw(order, step):
        sampling = KeyedSampling([keys[i] for i in order], prompt_length=4, top_p=1.0, temperature=1.0)
        return sampling(torch.zeros(len(order), 4 + step, dtype=torch.long), flat[: len(order)])

    assert torch.equal(draw([0, 1, 2], 3)[1], draw([1], 3)[0])
    assert not torch.equal(draw([0], 3), draw([0], 4))
    assert not torch.equal(draw([0], 3), draw([1], 3))


def test_the_end_token_ends_a_text(model, tokenizer):
    end = tokenizer.eos_token_id
    push = rs.Translation(40 * model.lm_head.weight[end].detach().double().numpy())
    found = lm.generate(model, tokenizer, PROMPTS, steering=push, **OPTIONS)
    assert all(g.finished and g.tokens == () and g.text == "" for g in found)
    unsteered = lm.generate(model, tokenizer, PROMPTS, **OPTIONS)
    assert not all(g.finished for g in unsteered)
    assert all(end not in g.tokens for g in unsteered)


def test_steering_may_be_given_by_site_or_for_the_final_one(model, tokenizer):
    m = random_map()
    by_site = lm.generate(model, tokenizer, PROMPTS, steering={"final": m}, **OPTIONS)
    assert lm.generate(model, tokenizer, PROMPTS, steering=m, **OPTIONS) == by_site
    with lm.steer(model, {"final": m}):
        assert lm.generate(model, tokenizer, PROMPTS, **OPTIONS) == by_site
    assert lm.generate(model, tokenizer, PROMPTS, **OPTIONS) != by_site
    weaker = lm.generate(model, tokenizer, PROMPTS, steering=m, strength=0.5, **OPTIONS)
    assert weaker != by_site


def test_settings_of_the_model_s_own_do_not_interfere(model, tokenizer):
    expected = lm.generate(model, tokenizer, PROMPTS, **OPTIONS)
    model.generation_config.repetition_penalty = 5.0
    model.generation_config.do_sample = True
    model.generation_config.no_repeat_ngram_size = 1
    assert lm.generate(model, tokenizer, PROMPTS, **OPTIONS) == expected


def test_prompts_beyond_memory_halve_the_batch(model, tokenizer):
    expected = lm.generate(model, tokenizer, PROMPTS, **OPTIONS)

    def full(module, args, kwargs):
        if len(kwargs["input_ids"]) > 5:
            raise torch.OutOfMemoryError("out of memory")

    model.model.register_forward_pre_hook(full, with_kwargs=True)
    with pytest.warns(BatchHalvedWarning):
        assert lm.generate(model, tokenizer, PROMPTS, **OPTIONS) == expected


def test_a_tokenizer_without_padding_will_do(model):
    tokenizer = tiny_tokenizer(pad=None)
    expected = lm.generate(model, tiny_tokenizer(), PROMPTS, **OPTIONS)
    found = lm.generate(model, tokenizer, PROMPTS, **OPTIONS)
    assert [g.tokens for g in found] == [g.tokens for g in expected]
    assert tokenizer.pad_token is None and tokenizer.padding_side == "right"


@pytest.mark.parametrize(
    "options",
    [{"n": 0}, {"max_new_tokens": 0}, {"top_p": 0.0}, {"top_p": 1.5}, {"temperature": 0.0}, {"seed": 0.5}],
    ids=lambda options: next(iter(options)),
)
def test_bad_settings_are_refused_by_name(model, tokenizer, options):
    with pytest.raises(ParameterError, match=next(iter(options))):
        lm.generate(model, tokenizer, PROMPTS, progress=False, **options)


def test_a_prompt_that_leaves_no_room_is_refused(model, tokenizer):
    with pytest.raises(TextError, match="are for new tokens"):
        lm.generate(model, tokenizer, [" ".join(["w1"] * (CONTEXT - 2))], progress=False)


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral", "gemma2", "opt", "gpt_neox"])
@pytest.mark.parametrize("positions", ["all", "generated", "prompt", "last"])
def test_reading_a_prompt_once_changes_no_continuation(family, positions, monkeypatch):
    model, tokenizer = tiny_model(family), tiny_tokenizer()
    steering = {"layers.0": random_map(), "final": random_map(seed=1)}
    options = {**OPTIONS, "steering": steering, "positions": positions, "batch_size": 7}
    shared = lm.generate(model, tokenizer, PROMPTS, **options)
    monkeypatch.setattr(sys.modules["repsurgery.lm.generate.generate"], "read_once", lambda *inputs, **how: {})
    assert lm.generate(model, tokenizer, PROMPTS, **options) == shared


def test_equal_prompts_are_read_once(model, tokenizer, monkeypatch):
    seen = []
    model.model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["input_ids"].shape), with_kwargs=True
    )
    lm.generate(model, tokenizer, PROMPTS, **OPTIONS)
    longest = len(tokenizer(PROMPTS[2])["input_ids"])
    assert seen[0] == (3, longest)
    assert all(shape == (12, 1) for shape in seen[1:])


def test_padding_is_no_part_of_a_prompt_that_is_read_once(model):
    # padded on the left, the shorter prompt has the very ids of the longer one
    tokenizer = tiny_tokenizer(pad="<s>")
    prompts = ["<s> w5", "w5"]
    assert tokenizer(prompts[0])["input_ids"] == [tokenizer.pad_token_id, *tokenizer(prompts[1])["input_ids"]]
    together = lm.generate(model, tokenizer, prompts, **OPTIONS)
    alone = [lm.generate(model, tokenizer, [prompt], **OPTIONS) for prompt in prompts]
    assert [g.tokens for g in together] == [g.tokens for some in alone for g in some]
    assert alone[0][0].tokens != alone[1][0].tokens


def test_a_generation_carries_the_tokens_of_its_prompt(model, tokenizer):
    (cut,) = lm.generate(model, tokenizer, ["w1 w2 w3 w4"], n=1, max_new_tokens=2, max_length=3, progress=False)
    assert cut.prompt_tokens == tuple(tokenizer("w1 w2 w3 w4")["input_ids"][:3])
