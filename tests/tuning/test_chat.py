"""A search whose prompts are conversations: what the model answers is what is judged, priced and locked."""

import pytest

import repsurgery as rs
from repsurgery.errors import ParameterError
from repsurgery.lm.chat import ChatText
from repsurgery.tuning.inputs import find_prompts
from repsurgery.tuning.prompts import split_prompts
from tests.lm.chats import chatty
from tests.lm.tiny_models import tiny_model
from tests.tuning.tiny import PLAN, PROMPTS, LetterScorer, tiny_tune, write_inputs

pytest.importorskip("optuna", reason="a search needs the extra repsurgery[tune]")


def asked(prompt):
    return [{"role": "user", "content": prompt}]


def test_plain_prompts_become_messages_and_conversations_stay():
    mixed = [asked("w1 w2"), "w3"]
    plain, chat = find_prompts(mixed), find_prompts(mixed, chat=True)
    assert [isinstance(prompt, ChatText) for prompt in plain.prompts] == [True, False]
    assert all(isinstance(prompt, ChatText) for prompt in chat.prompts)
    assert plain.place["digest"] != chat.place["digest"] and chat.place["chat"]
    assert find_prompts([asked("w1 w2"), asked("w3")]).place["digest"] == chat.place["digest"]
    with pytest.raises(ParameterError, match="texts or conversations"):
        find_prompts([3])


def test_conversations_are_told_apart_by_what_is_said():
    of_texts = split_prompts(PROMPTS, ["w9 w9 w9 w9 w9"], PLAN, seed=0)
    of_talks = split_prompts(find_prompts(PROMPTS, chat=True).prompts, ["w9 w9 w9 w9 w9"], PLAN, seed=0)
    assert of_talks.notes == of_texts.notes
    assert [talk.messages[0]["content"] for talk in of_talks.writing] == list(of_texts.writing)
    read = of_talks.read_by(chatty())
    assert read.search[0] == f"<s>w38 {of_texts.search[0]}</s><s>w39 "


def test_a_search_in_a_chat_is_made_again_by_its_lock(tmp_path):
    folder = tmp_path / "model"
    tiny_model("llama").save_pretrained(folder)
    chatty().save_pretrained(folder)
    table, prompts = write_inputs(tmp_path)
    work = tmp_path / "work"
    # the same work folder holds the continuations of the plain prompts, which must not be taken for answers
    plain = tiny_tune(folder, work, texts=table, prompts=prompts, minutes=0)
    tuned = tiny_tune(folder, work, texts=table, prompts=prompts, chat=True, minutes=0, dtype="float32")
    assert tuned.steering.origin.in_chat and plain.steering.origin.in_chat is None
    assert tuned.record["base"] != plain.record["base"]
    assert tuned.lock["prompts"]["chat"] and tuned.lock["dtype"] == "float32" and "chat" not in plain.lock["prompts"]
    tuned.save(tmp_path / "lower.safetensors")
    again = rs.tune(lock=tmp_path / "lower.lock.json", scorer=LetterScorer(), work_dir=tmp_path / "fresh")
    assert again.steering.digest() == tuned.steering.digest()
    assert again.steering.origin == tuned.steering.origin
