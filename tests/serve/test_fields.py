"""Fields that are meant to act are refused by name, unless they act here or their value changes nothing."""

import pytest

from repsurgery.serve.schema import NEUTRAL
from tests.lm.tiny_models import CONTEXT, tiny_model, tiny_tokenizer
from tests.serve.running import running

COMPLETION, CHAT = "/v1/completions", "/v1/chat/completions"
BODIES = {COMPLETION: {"prompt": "w1 w2"}, CHAT: {"messages": [{"role": "user", "content": "w1"}]}}
ACTING = {
    "steering_strength": 2.0,
    "steering_vector": [1.0],
    "stop_token_ids": [5],
    "use_beam_search": True,
    "num_beams": 4,
    "guided_json": {},
    "guided_choice": ["w1"],
    "grammar": "root ::= w1",
    "bad_words": ["w1"],
    "repeat_penalty": 1.3,
    "no_repeat_ngram_size": 2,
    "chat_template_kwargs": {"thinking": True},
    "include_stop_str_in_output": True,
    "n_predict": 3,
    "truncate_prompt_tokens": 1,
    "logit_bias": {"5": 100},
    "best_of": 2,
    "tools": [{}],
    "reasoning_effort": "low",
    "a_field_of_tomorrow": 1,
}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("field", ACTING)
def test_a_field_that_could_act_is_refused_by_name(field, path, served):
    status, answer, _ = served.post(path, **BODIES[path], **{field: ACTING[field]})
    assert status == 400 and repr(field) in answer["error"]["message"]


@pytest.mark.parametrize("path", BODIES)
def test_extra_body_is_refused_with_the_remedy(path, served):
    status, answer, _ = served.post(path, **BODIES[path], extra_body={"steering": {"name": "first"}})
    assert status == 400 and "send what it holds as fields of the body" in answer["error"]["message"]


@pytest.mark.parametrize("path", BODIES)
def test_fields_that_change_nothing_are_accepted(path, served):
    how = {"temperature": 0, "max_tokens": 5, "n": 2}
    plain = served.post(path, **BODIES[path], **how)[1]["choices"]
    harmless = {
        "user": "someone",
        "metadata": {"a": "b"},
        "store": True,
        "service_tier": "auto",
        "safety_identifier": "x",
        "prompt_cache_key": "x",
        "best_of": 2,
        "suffix": None,
        "tools": None,
    }
    neutral = {name: values[0] for name, values in NEUTRAL.items() if name not in harmless}
    for fields in (harmless, neutral):
        status, answer, _ = served.post(path, **BODIES[path], **how, **fields)
        assert status == 200 and answer["choices"] == plain


@pytest.mark.parametrize("path", BODIES)
def test_both_names_of_the_number_of_new_tokens_act(path, served):
    for field in ("max_tokens", "max_completion_tokens"):
        _, answer, _ = served.post(path, **BODIES[path], temperature=0, **{field: 2})
        assert answer["usage"]["completion_tokens"] == 2
    status, answer, _ = served.post(path, **BODIES[path], max_tokens=2, max_completion_tokens=3)
    assert status == 400 and "differ; send one of them" in answer["error"]["message"]


def test_a_default_that_does_not_fit_is_shortened():
    model = tiny_model("llama")
    model.generation_config.eos_token_id = 10**6
    with running(model, tiny_tokenizer(), max_new_tokens=8) as server:
        assert server.complete("w1")["usage"]["completion_tokens"] == 8
        # what was asked for is never shortened
        assert server.post(COMPLETION, prompt="w1", max_tokens=9)[0] == 400
    with running(model, tiny_tokenizer()) as server:
        assert server.complete("w1")["usage"]["completion_tokens"] == 16
        length = CONTEXT - 8
        assert server.complete("w1 " * (length - 1))["usage"]["completion_tokens"] == 8
        assert server.post(COMPLETION, prompt="w1 " * (length - 1), max_tokens=16)[0] == 400
        assert server.post(COMPLETION, prompt="w1 " * (CONTEXT - 1))[0] == 400
