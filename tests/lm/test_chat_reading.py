"""Conversations in `generate`, `extract`, `class_moments` and `on_policy`, beside plain texts."""

import numpy as np
import pytest
import torch

from repsurgery import lm
from repsurgery.errors import ParameterError, TextError
from repsurgery.lm.chat import chat_prompt, rendered
from tests.lm.chats import ANSWERED, COUNTED, DIALOGUE, LONGER, QUESTION, chatty
from tests.lm.tiny_models import tiny_model, tiny_tokenizer
from tests.lm.tools import DEPTH, assert_close, random_map, states

MIXED = ["w1 w2 w3", DIALOGUE, "w4", QUESTION, LONGER]
OPTIONS = {"n": 3, "max_new_tokens": 5, "progress": False}


def hidden(model, tokenizer, messages, site="final"):
    ids = torch.tensor([chat_prompt(tokenizer, messages)])
    return states(model, site, ids, torch.ones_like(ids))[0].numpy()


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3"])
def test_a_conversation_is_continued_like_the_tokens_of_its_template(family):
    model, tokenizer = tiny_model(family), chatty()
    found = lm.generate(model, tokenizer, MIXED, **OPTIONS)
    # a tokenizer that adds nothing reads what the template wrote
    bare = chatty()
    bare.backend_tokenizer.post_processor = None
    texts = [text if isinstance(text, str) else rendered(tokenizer, text) for text in MIXED]
    as_strings = lm.generate(model, bare, [f"<s>{text}" if text in MIXED else str(text) for text in texts], **OPTIONS)
    for g, same in zip(found, as_strings, strict=True):
        assert g.prompt_tokens == same.prompt_tokens
        if not isinstance(MIXED[g.index], str):
            assert (g.prompt, g.tokens, g.finished) == (same.prompt, same.tokens, same.finished)
    assert found[3].prompt == "<s>w38 w1 w2</s><s>w39 w3 w4 w5</s><s>w38 w6</s><s>w39 "


def test_a_mixed_batch_is_its_single_prompts(model):
    tokenizer = chatty()
    together = lm.generate(model, tokenizer, MIXED, steering=random_map(size=0.1), **OPTIONS)
    alone = [g for one in MIXED for g in lm.generate(model, tokenizer, [one], steering=random_map(size=0.1), **OPTIONS)]
    assert [g.tokens for g in together] == [g.tokens for g in alone]


def test_the_noise_depends_on_the_conversation(model):
    tokenizer = chatty()
    twice = lm.generate(model, tokenizer, [QUESTION, QUESTION], **{**OPTIONS, "n": 8})
    assert [g.tokens for g in twice[:8]] != [g.tokens for g in twice[8:]]
    again = lm.generate(model, tokenizer, [tuple(QUESTION)], **{**OPTIONS, "n": 8})
    assert [g.tokens for g in again] == [g.tokens for g in twice[:8]]


@pytest.mark.parametrize("site", ["final", "layers.0"])
def test_the_assistants_turn_is_what_is_read(model, site):
    tokenizer, turn = chatty(), slice(7, 10)
    H = hidden(model, tokenizer, ANSWERED, site)
    plain = states(model, site, torch.tensor([[1, 5]]), torch.ones(1, 2))[0].numpy()
    read = {
        pooling: lm.extract(model, tokenizer, ["w1", ANSWERED, QUESTION], site=site, pooling=pooling, progress=False)
        for pooling in ("last", "cls", "mean")
    }
    assert_close(read["last"], [plain[-1], H[9], H[6]], rtol=DEPTH)
    assert_close(read["cls"], [plain[0], H[0], H[0]], rtol=DEPTH)
    # the question is a beginning of the answered conversation, and is read whole
    assert_close(read["mean"], [plain.mean(axis=0), H[turn].mean(axis=0), H[:7].mean(axis=0)], rtol=DEPTH)
    assert not np.allclose(read["mean"][1], H.mean(axis=0))


def test_moments_of_conversations_are_those_of_their_turns(model):
    tokenizer = chatty()
    talks = [ANSWERED, [*QUESTION, {"role": "assistant", "content": "w9"}], "w1 w2", LONGER[:5]]
    labels = ["a", "b", "a", "b"]
    found = lm.class_moments(
        model, tokenizer, talks, labels, sites=["final"], pooling="all", batch_size=2, progress=False
    )["final"]
    assert {label: found[label].count for label in "ab"} == {"a": 3 + 3, "b": 1 + 5}
    H = hidden(model, tokenizer, LONGER[:5])
    last = hidden(model, tokenizer, talks[1])[-1:]
    own = [i for i, token in enumerate(chat_prompt(tokenizer, LONGER[:5])) if token in {4 + w for w in (3, 4, 5, 8, 9)}]
    assert_close(found["b"].mean, np.concatenate([H[own], last]).mean(axis=0), rtol=DEPTH)
    one_each = lm.class_moments(model, tokenizer, talks, labels, sites=["final"], pooling="mean", progress=False)
    rows = lm.extract(model, tokenizer, talks, pooling="mean", progress=False)
    assert_close(one_each["final"]["a"].mean, rows[[0, 2]].mean(axis=0), rtol=DEPTH)


def test_a_work_folder_tells_turns_from_texts(model, tmp_path):
    tokenizer, how = chatty(), {"pooling": "mean", "progress": False, "work_dir": tmp_path}
    turns = lm.extract(model, tokenizer, [ANSWERED], **how)
    bare = chatty()
    bare.backend_tokenizer.post_processor = None
    whole = lm.extract(model, bare, [str(rendered(tokenizer, ANSWERED))], **how)
    assert not np.allclose(turns, whole)
    assert np.array_equal(lm.extract(model, tokenizer, [ANSWERED], **how), turns)


def test_on_policy_answers_conversations(model, tmp_path):
    tokenizer = chatty()
    prompts = [QUESTION, "w1 w2", DIALOGUE]
    how = {"samples": 6, "max_new_tokens": 4, "progress": False}

    def scorer(texts):
        return [float("w1" in text or "w2" in text) for text in texts]

    own = lm.on_policy(model, tokenizer, prompts, scorer, **how)
    plain = lm.generate(model, tokenizer, prompts, n=6, max_new_tokens=4, progress=False)
    assert [(g.prompt, g.tokens) for g in own.generations] == [(g.prompt, g.tokens) for g in plain]


def test_without_a_template_or_turns_nothing_is_read(model):
    with pytest.raises(ParameterError, match="no chat template"):
        lm.generate(model, tiny_tokenizer(), [QUESTION], **OPTIONS)
    with pytest.raises(TextError, match=r"conversation at index 1\. Message 0 has the role 'bot'"):
        lm.generate(model, chatty(), ["w1", [{"role": "bot", "content": "w1"}]], **OPTIONS)
    with pytest.raises(ParameterError, match=r"such as \[conversation\]"):
        lm.generate(model, chatty(), QUESTION, **OPTIONS)
    assert len(lm.extract(model, chatty(COUNTED), [ANSWERED], pooling="last", progress=False)) == 1
    with pytest.raises(TextError, match="cannot be found"):
        lm.extract(model, chatty(COUNTED), [ANSWERED], pooling="mean", progress=False)
    with pytest.raises(TextError, match="do not reach the turn"):
        lm.extract(model, chatty(), [ANSWERED], pooling="mean", max_length=7, progress=False)


def test_an_encoder_without_a_template_says_so():
    with pytest.raises(ParameterError, match="no chat template"):
        lm.extract(tiny_model("bert"), tiny_tokenizer(), [QUESTION], progress=False)


def test_a_conversation_that_is_cut_before_its_answer_is_refused(model):
    tokenizer = chatty()
    with pytest.raises(TextError, match="do not reach the turn"):
        lm.extract(model, tokenizer, [ANSWERED] * 2, site="final", pooling="last", max_length=4, progress=False)
    with pytest.raises(TextError, match="max_length is 4"):
        lm.generate(model, tokenizer, [ANSWERED], max_length=4, max_new_tokens=2, progress=False)
