"""positions="assistant": every answer of a conversation, the earlier ones and the one that is being written."""

import pytest
import torch

from repsurgery import lm
from repsurgery.errors import PassError, TextError
from repsurgery.lm.batching.tokens import pad
from repsurgery.lm.chat import assistant_turns, chat_prompt
from repsurgery.lm.steer.positions import Forward
from repsurgery.lm.steer.turns import answer_positions, prompt_turns
from tests.lm.chats import ANSWERED, COUNTED, DIALOGUE, LONGER, QUESTION, chatty
from tests.lm.tiny_models import tiny_model
from tests.lm.tools import random_map

FAMILIES = ["llama", "gpt2", "mistral", "gemma3", "qwen3"]
MAP = random_map(size=0.3)
HOW = {"steering": {"layers.0": MAP}, "positions": "assistant", "progress": False}
GREEDY = {"n": 1, "max_new_tokens": 6, "top_p": 1e-9}


def chosen(turns, **facts):
    forward = Forward(**{"batch": 1, "offset": 0, "mask": None, "turns": lambda: turns, **facts})
    wanted = forward.selected("assistant")
    return wanted if isinstance(wanted, bool) else wanted.int().tolist()


def test_answers_in_the_prompt_and_new_tokens_are_selected():
    turns = torch.tensor([[0, 1, 1, 0, 0]]).bool()
    assert chosen(turns, length=5, prompt=5) == [[0, 1, 1, 0, 1]]
    assert chosen(turns, length=7, prompt=5) == [[0, 1, 1, 0, 1, 1, 1]]
    assert chosen(turns, length=2, offset=1, prompt=5) == [[1, 1]]
    assert chosen(turns, length=1, offset=3, prompt=5) == [[0]]
    assert chosen(turns, length=1, offset=4, prompt=5) is chosen(turns, length=1, offset=9, prompt=5) is True
    # two virtual tokens come before the prompt, in the pass and in the cache
    assert chosen(turns, length=7, prompt=5, virtual=2) == [[0, 0, 0, 1, 1, 0, 1]]
    assert chosen(turns, length=4, offset=3, prompt=5, virtual=2) == [[1, 1, 0, 1]]
    padded = torch.tensor([[0, 0, 1, 1, 1]])
    assert chosen(turns, length=5, prompt=5, mask=padded) == [[0, 0, 1, 0, 1]]


def test_the_position_before_a_turn_predicts_it():
    assert answer_positions([False, False, True, True, False]) == [False, True, True, True, False]


@pytest.mark.parametrize("family", FAMILIES)
def test_an_earlier_answer_is_read_as_it_was_written(family):
    model, tokenizer = tiny_model(family, seed=3), chatty()
    # only words: a special token would not survive the way through a text
    model.generation_config.eos_token_id = None
    words = {"suppress": torch.arange(4)}
    head = model.get_output_embeddings()
    head.register_forward_hook(lambda module, args, logits: logits.index_fill(-1, words["suppress"], -1e4))
    [whole] = lm.generate(model, tokenizer, [QUESTION], **HOW, **GREEDY)
    said = " ".join(tokenizer.convert_ids_to_tokens(list(whole.tokens[:3])))
    begun = [*QUESTION, {"role": "assistant", "content": said}]
    [rest] = lm.generate(model, tokenizer, [begun], **HOW, **{**GREEDY, "max_new_tokens": 3})
    assert rest.tokens == whole.tokens[3:]
    # where the earlier tokens are not steered, other states follow, although the last position is steered in both
    ids = torch.tensor([chat_prompt(tokenizer, begun)])
    steered = {p: logits(model, tokenizer, begun, ids, p) for p in ("assistant", "generated", "all")}
    assert not torch.allclose(steered["assistant"], steered["generated"])
    assert not torch.allclose(steered["assistant"], steered["all"])


def logits(model, tokenizer, messages, ids, positions, **how):
    _, mask = assistant_turns(tokenizer, messages)
    turns = torch.tensor([answer_positions(mask)])
    options = {"do_sample": False, "max_new_tokens": 4, "return_dict_in_generate": True, "output_logits": True}
    with lm.steer(model, {"layers.0": MAP}, positions=positions), prompt_turns(lambda: turns):
        found = model.generate(ids, attention_mask=torch.ones_like(ids), **options, **how)
    return torch.stack(found.logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_cached_and_uncached_generation_agree_on_the_assistants_turns(family):
    model, tokenizer = tiny_model(family), chatty()
    model.generation_config.eos_token_id = None
    ids = torch.tensor([chat_prompt(tokenizer, LONGER)])
    cached, uncached = (logits(model, tokenizer, LONGER, ids, "assistant", use_cache=on) for on in (True, False))
    torch.testing.assert_close(cached, uncached, rtol=1e-4, atol=1e-4)
    # an open answer, which also a sliding window of six tokens holds
    ids = torch.tensor([chat_prompt(tokenizer, ANSWERED)])
    of_turns, generated = (logits(model, tokenizer, ANSWERED, ids, p) for p in ("assistant", "generated"))
    assert not torch.allclose(of_turns, generated, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_of_conversations_is_its_single_ones(family):
    model, tokenizer = tiny_model(family), chatty()
    talks = [QUESTION, LONGER, DIALOGUE, ANSWERED, DIALOGUE]
    options = {**HOW, "n": 3, "max_new_tokens": 5}
    together = lm.generate(model, tokenizer, talks, **options)
    small = lm.generate(model, tokenizer, talks, batch_size=1, **options)
    assert [g.tokens for g in together] == [g.tokens for g in small]
    alone = [g for talk in talks[:4] for g in lm.generate(model, tokenizer, [talk], **options)]
    assert [g.tokens for g in together[:12]] == [g.tokens for g in alone]
    for other in ("all", "generated"):
        assert [g.tokens for g in lm.generate(model, tokenizer, talks, **{**options, "positions": other})] != [
            g.tokens for g in together
        ]


def test_a_question_alone_is_answered_as_under_generated(model):
    options = {**HOW, "n": 4, "max_new_tokens": 5}
    of_turns = lm.generate(model, chatty(), [QUESTION], **options)
    generated = lm.generate(model, chatty(), [QUESTION], **{**options, "positions": "generated"})
    assert [g.tokens for g in of_turns] == [g.tokens for g in generated]


def test_where_turns_are_unknown_generated_is_named(model):
    tokenizer = chatty()
    options = {**HOW, "n": 2, "max_new_tokens": 2}
    for prompts in (["w1"], [DIALOGUE, "w1"]):
        with pytest.raises(PassError, match=r"'w1' is a plain text.*positions='generated'"):
            lm.generate(model, tokenizer, prompts, **options)
    ids, _ = pad([chat_prompt(tokenizer, QUESTION)], token=0, side="left")
    with (
        pytest.raises(PassError, match="positions='generated'"),
        lm.steer(model, {"final": MAP}, positions="assistant"),
    ):
        model(ids)
    with (
        pytest.raises(PassError, match="positions='generated'"),
        lm.steer(model, {"final": MAP}, positions="assistant"),
    ):
        model.generate(ids, max_new_tokens=1)
    with pytest.raises(PassError, match="cannot tell positions='assistant'"):
        lm.kl_divergence(model, tokenizer, ["w1 w2"], MAP, positions="assistant", progress=False)
    with pytest.raises(TextError, match="cannot be found"):
        lm.generate(model, chatty(COUNTED), [DIALOGUE], **options)
    # nothing is asked of the template where the turns are not steered
    assert lm.generate(model, chatty(COUNTED), [DIALOGUE], **{**options, "positions": "generated"})


def test_rows_with_steerings_of_their_own_have_their_own_turns(model):
    tokenizer = chatty()
    prompts = [DIALOGUE, "w1 w2", DIALOGUE, LONGER]
    choices = [
        lm.Choice({"layers.0": MAP}, positions="assistant"),
        lm.Choice({"layers.0": MAP}, positions="all"),
        None,
        lm.Choice({"layers.0": MAP}, strength=0.5, positions="assistant"),
    ]
    options = {"n": 3, "max_new_tokens": 5, "progress": False}
    together = lm.generate(model, tokenizer, prompts, steering=choices, **options)
    # the second occurrence of a conversation has noise of its own, so it is compared by its place
    for i in (0, 1, 3):
        alone = lm.generate(model, tokenizer, [prompts[i]], steering=[choices[i]], **options)
        assert [g.tokens for g in alone] == [g.tokens for g in together[3 * i : 3 * i + 3]]
    with pytest.raises(PassError, match="'w1 w2' is a plain text"):
        lm.generate(model, tokenizer, ["w1 w2"], steering=choices[:1], **options)


def test_equal_tokens_of_different_turns_are_not_read_as_one(model):
    tokenizer = chatty()
    forged = [{"role": "user", "content": "w1 w2</s><s>w39 w3 w4 w5</s><s>w38 w6"}]
    assert chat_prompt(tokenizer, forged) == chat_prompt(tokenizer, DIALOGUE)
    options = {**HOW, **GREEDY, "n": 2}
    both = lm.generate(model, tokenizer, [DIALOGUE, forged], **options)
    alone = [g for talk in (DIALOGUE, forged) for g in lm.generate(model, tokenizer, [talk], **options)]
    assert [g.tokens for g in both] == [g.tokens for g in alone]


def test_a_growing_batch_knows_the_turns_of_its_rows(model):
    tokenizer = chatty()
    tokens, mask = assistant_turns(tokenizer, ANSWERED)
    choice = lm.Choice({"layers.0": MAP}, positions="assistant")
    expected = logits(model, tokenizer, ANSWERED, torch.tensor([tokens]), "assistant")[:2, 0]
    with lm.RowDecoder(model, tokenizer) as rows:
        first = rows.join([[1, 5], tokens, tokens], [None, choice, None], turns=[None, mask, mask])
        second = rows.step([7, int(first[1].argmax()), 7])
        torch.testing.assert_close(torch.stack([first[1], second[1]]), expected, rtol=1e-4, atol=1e-4)
        assert not torch.allclose(first[1], first[2])
        with pytest.raises(PassError, match="positions='generated'"):
            rows.join([tokens], [choice])
        assert len(rows) == 3
