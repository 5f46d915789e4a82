"""An instruction before the prompt: in a chat or as plain text, and never a part of the continuation."""

import pytest
import torch

from repsurgery.errors import ModelError, ParameterError, TextError
from repsurgery.lm.generate.generate import until_end
from repsurgery.lm.generate.sampling import sample_key
from repsurgery.studies.toxicity.decoding.rival import Rival
from repsurgery.studies.toxicity.rivals.instruction import TASK, WORDINGS
from tests.lm.tiny_models import tiny_model, tiny_tokenizer
from tests.studies.toxicity.rivals.contexts import PROMPTS, SEEDS, base, rival, rows, tiny_context

TEMPLATE = "{% for m in messages %}<s>{{ m['role'] }} {{ m['content'] }}</s>{% endfor %}"


def chatty(template=TEMPLATE):
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral"])
def test_without_an_instruction_the_texts_are_those_of_the_base(family):
    context = tiny_context(model=tiny_model(family), tokenizer=chatty())
    untouched = base(context).generate(PROMPTS, SEEDS)
    assert rival("instruction wording=none chat=no", context).generate(PROMPTS, SEEDS) == untouched
    for line in ("instruction", "instruction chat=no", "instruction wording=none"):
        assert rival(line, context).generate(PROMPTS, SEEDS) != untouched


def test_in_a_chat_the_prompt_begins_the_answer():
    one = rival("instruction", tiny_context(tokenizer=chatty()))
    assert one.before == f"<s>user {TASK} {WORDINGS['kind']}</s><s>assistant "
    # two <s> and one </s> of the template; the tokenizer adds no further one
    [row] = one.encode(["w1 w2"])
    assert row == one.tokenizer(one.before + "w1 w2", add_special_tokens=False)["input_ids"]
    assert (row.count(1), row.count(2)) == (2, 1) and one.tokenizer.decode(row).endswith("w1 w2")


def test_without_a_template_the_instruction_is_a_paragraph():
    one = rival("instruction wording=safe", tiny_context())
    assert one.before == WORDINGS["safe"] + "\n\n"
    assert one.encode(["w1"]) == [one.tokenizer(WORDINGS["safe"] + " w1")["input_ids"]]
    chat = tiny_context(tokenizer=chatty())
    assert rival("instruction wording=safe chat=no", chat).before == one.before


@pytest.mark.parametrize("line", ["instruction", "instruction chat=no wording=safe"])
def test_the_continuation_is_what_follows_the_prompt(line):
    context = tiny_context(tokenizer=chatty())
    for row in rival(line, context).generate(PROMPTS, SEEDS):
        for continuation in row:
            words = context.tokenizer.decode(continuation.tokens, skip_special_tokens=True)
            assert continuation.text.split() == words.split()


@pytest.mark.parametrize("line", ["instruction", "instruction chat=no"])
def test_a_batch_writes_what_single_rows_write(line):
    context = tiny_context(tokenizer=chatty())
    together = rows(rival(line, context))
    assert together == [[rows(rival(line, context), [p], [s])[0][0] for s in SEEDS] for p in PROMPTS]


def test_an_instruction_is_the_base_after_a_longer_text():
    context = tiny_context()
    one = rival("instruction", context)
    for prompt in PROMPTS:
        # the same keys of the noise, and the text that the rival reads
        keys = [sample_key(0, prompt, 0, seed) for seed in SEEDS]
        read = [context.tokenizer(f"{WORDINGS['kind']} {prompt}")["input_ids"]] * len(SEEDS)
        plain = Rival("base", context)
        with torch.no_grad():
            drawn = [until_end(row, [2])[0] for row in plain.continued(read, keys)]
        assert [list(tokens) for tokens in rows(one, [prompt])[0]] == drawn


def test_the_wording_and_the_chat_decide_what_is_stored():
    context = tiny_context(tokenizer=chatty())
    lines = ("instruction", "instruction wording=safe", "instruction chat=no", "instruction wording=none")
    assert len({str(rival(line, context).identity["before"]) for line in lines}) == len(lines)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (None, "no chat template"),
        (
            "{{ raise_exception('only one turn') }}{{ messages[0]['content'] }}",
            "cannot leave an answer open.*only one turn",
        ),
        ("{% for m in messages if m['role'] == 'user' %}{{ m['content'] }}{% endfor %}", "cannot leave an answer open"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused(template, said):
    with pytest.raises(ModelError, match=f"(?s){said}.*chat=no"):
        rival("instruction chat=yes", tiny_context(tokenizer=chatty(template)))


def test_a_prompt_that_fits_only_without_the_instruction_is_refused_before_any_generation(monkeypatch):
    context = tiny_context()
    one, prompt = rival("instruction", context), "w1 " * 55
    assert base(context).generate([prompt], [0])
    monkeypatch.setattr(type(one), "decoder", None)
    said = (
        r"instruction got a text of \d+ tokens at index 1; the context holds 64.*drop the prompt that begins with 'w1"
    )
    with pytest.raises(TextError, match=said) as refusal:
        one.generate(["w1", prompt], [0])
    assert "max_length" not in str(refusal.value)


@pytest.mark.parametrize(("option", "said"), [("wording=rude", "kind, safe, none"), ("chat=maybe", "auto, yes, no")])
def test_options_that_mean_nothing_are_refused(option, said):
    with pytest.raises(ParameterError, match=f"choose one of {said}"):
        rival(f"instruction {option}", tiny_context())
