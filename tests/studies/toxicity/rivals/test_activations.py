"""What AurA, Linear-AcT, DeStein and repeng's vectors share: hooks on the model, and parts from labelled texts."""

import numpy as np
import pytest
import torch
from transformers import MambaConfig, MambaForCausalLM

from repsurgery import lm
from repsurgery.errors import DataError, ParameterError, SiteError
from repsurgery.studies.toxicity.decoding.cached_model import CachedModel
from repsurgery.studies.toxicity.decoding.module_hooks import (
    blocks_of,
    head_sites,
    hooked,
    pooled_states,
    token_mean,
)
from repsurgery.studies.toxicity.rivals.repeng import last_token
from tests.lm.tiny_models import DECODERS, MIXTURES, VOCABULARY, WORDS, texts, tiny_model, tiny_tokenizer
from tests.studies.toxicity.rivals.contexts import PROMPTS, SEEDS, base, rival, rows, tiny_context

METHODS = {
    "aura": "strength",
    "linear-act": "strength",
    "destein": "alpha",
    "destein-per-head": "alpha",
    "repeng": "strength",
}
FAMILIES = ["llama", "gpt2"]
REFUSED = {("aura", family) for family in MIXTURES}


@pytest.fixture(scope="module", params=[(name, family) for name in METHODS for family in FAMILIES], ids="-".join)
def case(request, tmp_path_factory):
    name, family = request.param
    return name, tiny_context(model=tiny_model(family), work=tmp_path_factory.mktemp("work"))


def at(case, strength):
    name, context = case
    return rival(f"{name} {METHODS[name]}={strength}", context)


def test_strength_zero_is_the_base(case):
    assert at(case, 0).generate(PROMPTS, SEEDS) == base(case[1]).generate(PROMPTS, SEEDS)
    assert rows(at(case, 2)) != rows(base(case[1]))


def test_a_batch_writes_what_single_rows_write(case):
    whole = rows(at(case, 1))
    alone = [[rows(at(case, 1), [prompt], [seed])[0][0] for seed in SEEDS[:2]] for prompt in PROMPTS]
    assert [row[:2] for row in whole] == alone


def test_logits_with_a_cache_are_those_without(case):
    rival = at(case, 1)
    ids = torch.tensor([[1, 5, 9, 30, 12, 7]])
    with torch.no_grad(), rival.applied():
        decoder = CachedModel(rival.model)
        cached = [decoder.read(ids[:, :3], torch.ones(1, 3, dtype=torch.long))]
        cached += [decoder.step(ids[:, j]) for j in range(3, 6)]
        whole = rival.model(ids).logits[0, 2:]
    torch.testing.assert_close(torch.cat(cached), whole, rtol=1e-4, atol=1e-4)


def test_a_larger_strength_moves_the_model_further(case):
    ids = torch.tensor([[1, 5, 9, 30, 12, 7], [1, 8, 8, 20, 41, 33]])
    model = case[1].model
    with torch.no_grad():
        p = model(ids).logits.log_softmax(-1)
        distances = []
        for strength in (0.1, 0.3, 0.9):
            with at(case, strength).applied():
                q = model(ids).logits.log_softmax(-1)
            distances.append(float((p.exp() * (p - q)).sum(-1).mean()))
    assert 0 < distances[0] < distances[1] < distances[2]


def test_hooks_are_removed(case):
    rival = at(case, 1)
    ids = torch.tensor([[1, 5, 9]])
    with torch.no_grad():
        before = rival.model(ids).logits
        with rival.applied():
            changed = rival.model(ids).logits
        with pytest.raises(RuntimeError, match="inside"), rival.applied():
            rival.model(ids)
            raise RuntimeError("inside")
        assert torch.equal(rival.model(ids).logits, before)
    assert not torch.equal(changed, before)
    hooks = (h for m in rival.model.modules() for h in (*m._forward_hooks.values(), *m._forward_pre_hooks.values()))
    assert not list(hooks)


def test_the_likelihood_model_is_the_changed_model(case):
    rival = at(case, 1)
    ids = torch.tensor([[1, 5, 9]])
    with torch.no_grad(), rival.likelihood_model() as model:
        found = model(ids).logits
    with torch.no_grad(), rival.applied():
        assert torch.equal(rival.model(ids).logits, found)


def test_a_part_does_not_depend_on_the_strength(case):
    one, other = at(case, 1), at(case, 0.5)
    (name,) = one.parts()
    assert one.part_identity(name) == other.part_identity(name) and one.identity != other.identity
    fewer = rival(f"{case[0]} texts=3", case[1])
    assert fewer.part_identity(name) != one.part_identity(name)
    assert fewer.part(name).header["texts"] == 3


@pytest.mark.parametrize("name", METHODS)
def test_bad_input(name, tmp_path):
    novel = tiny_model("llama")
    novel.config.model_type = "novel"
    with pytest.raises(SiteError, match="not in the table of sites"):
        rival(name, tiny_context(model=novel, work=tmp_path)).prepare(progress=False)
    context = tiny_context(work=tmp_path)
    with pytest.raises(ParameterError, match=f"'{name} texts=1' has texts=1; it must be at least 2"):
        rival(f"{name} texts=1", context)
    for value in ("nan", "inf", "-inf"):
        line = f"{name} {METHODS[name]}={value}"
        with pytest.raises(ParameterError, match=f"'{line}' has {METHODS[name]}={value}; it must be finite"):
            rival(line, context)
    context.texts.fitted["toxic"] = ["w1"]
    with pytest.raises(DataError, match="fit_rows"):
        rival(name, context).prepare(progress=False)
    # nothing of the failures was stored
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize("name", METHODS)
def test_labelled_texts_beyond_the_context_are_cut(name, tmp_path):
    context = tiny_context(work=tmp_path, max_length=512)
    for label, own in context.texts.fitted.items():
        context.texts.fitted[label] = [f"{text} {' '.join(WORDS * 3)}" for text in own]
    rival(name, context).prepare(progress=False)


@pytest.mark.parametrize("family", DECODERS)
@pytest.mark.parametrize("name", METHODS)
def test_every_family_is_changed_or_refused(name, family, tmp_path):
    context = tiny_context(model=tiny_model(family), work=tmp_path)
    one = rival(f"{name} {METHODS[name]}=2", context)
    if (name, family) in REFUSED:
        with pytest.raises(SiteError, match="Leave this method out"):
            one.prepare(progress=False)
        return
    assert rows(one) != rows(base(context))


def test_models_without_the_modules_are_refused(tmp_path):
    with pytest.raises(SiteError, match=r"linear layers of MLPs.*Leave this method out"):
        rival("aura", tiny_context(model=tiny_model("mixtral"), work=tmp_path)).prepare(progress=False)
    mamba = MambaForCausalLM(MambaConfig(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, state_size=4))
    with pytest.raises(SiteError, match=r"attention heads.*Leave this method out"):
        rival("destein", tiny_context(model=mamba, work=tmp_path)).prepare(progress=False)


def test_pooled_states_are_those_of_extract():
    model, tokenizer, some = tiny_model("llama"), tiny_tokenizer(), texts(11)
    sites = blocks_of(model)
    for pool, pooling in ((last_token, "last"), (token_mean, "mean")):
        found = pooled_states(model, tokenizer, some, sites, pool, max_length=16)
        for site in sites:
            X = lm.extract(model, tokenizer, some, site=site.name, pooling=pooling, max_length=16, progress=False)
            np.testing.assert_allclose(found[site.name], X, rtol=1e-4, atol=1e-5)


def test_pooled_states_do_not_depend_on_the_batch_size():
    model, tokenizer, some = tiny_model("gpt2"), tiny_tokenizer(), texts(11)
    sites = head_sites(model, method="this test")
    one, many = (
        pooled_states(model, tokenizer, some, sites, token_mean, max_length=16, batch_size=size) for size in (1, 11)
    )
    for name, X in one.items():
        np.testing.assert_allclose(X, many[name], rtol=1e-4, atol=1e-5)


def test_an_error_in_a_hook_leaves_no_hooks():
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()

    def fail(state, mask):
        raise MemoryError("a test")

    with pytest.raises(MemoryError):
        pooled_states(model, tokenizer, ["w1"], blocks_of(model), fail, max_length=16)
    assert not any(m._forward_hooks for m in model.modules())
    with hooked({blocks_of(model)[0]: lambda state: None}):
        assert any(m._forward_hooks for m in model.modules())
