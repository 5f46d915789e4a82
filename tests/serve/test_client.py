"""The real client of OpenAI against a running server."""

from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tests.serve.running import PATIENCE, until

MESSAGES = [{"role": "system", "content": "w7"}, {"role": "user", "content": "w5 w6"}]


def client(server, **options):
    return openai.OpenAI(base_url=server.base_url, api_key="any", max_retries=0, timeout=PATIENCE, **options)


@pytest.fixture
def api(served):
    with client(served) as api:
        yield api


def test_a_stream_is_the_whole_answer_in_pieces(api):
    body = {"model": "tiny", "prompt": "w1 w2", "max_tokens": 12, "seed": 5}
    whole = api.completions.create(**body)
    parts = list(api.completions.create(**body, stream=True, stream_options={"include_usage": True}))
    assert "".join(part.choices[0].text for part in parts[:-1]) == whole.choices[0].text
    assert [part.choices[0].finish_reason for part in parts[:-1]] == [None] * (len(parts) - 2) + ["length"]
    assert parts[-1].choices == [] and parts[-1].usage == whole.usage
    assert whole.usage.prompt_tokens == 3 and whole.usage.completion_tokens == 12
    assert len({part.id for part in parts}) == 1 and len(parts) > 5


def test_chat_goes_through_the_template_of_the_tokenizer(api):
    body = {"model": "tiny", "max_tokens": 8, "temperature": 0}
    answer = api.chat.completions.create(messages=MESSAGES, **body)
    # what the template writes for these messages, with no token added to it
    written = "system w1 w7 w2 user w1 w5 w6 w2 assistant w1"
    assert answer.usage.prompt_tokens == len(written.split())
    assert answer.choices[0].message.role == "assistant"
    parts = list(api.chat.completions.create(messages=MESSAGES, stream=True, **body))
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(part.choices[0].delta.content or "" for part in parts) == answer.choices[0].message.content
    newer = api.chat.completions.create(messages=[{**MESSAGES[0], "role": "developer"}, MESSAGES[1]], **body)
    assert newer.choices[0].message.content == answer.choices[0].message.content


def test_a_steering_is_chosen_by_a_field_or_by_the_name_of_the_model(api):
    body = {"messages": MESSAGES, "max_tokens": 10, "temperature": 0}

    def said(model, steering=None, **more):
        extra = {"steering": steering} if steering else {}
        answer = api.chat.completions.create(model=model, extra_body=extra, **body, **more)
        return answer.choices[0].message.content

    base, steered = said("tiny"), said("tiny", {"name": "first"})
    assert said("tiny+first") == steered != base
    assert said("tiny+first", {"name": "first", "strength": 0.0}) == base
    # strength and positions of the file hold where the request states none
    own = said("tiny", {"name": "third"})
    assert own == said("tiny", {"name": "third", "strength": 0.5, "positions": "generated"})
    assert own != said("tiny", {"name": "third", "strength": 1.0, "positions": "all"})
    # the order of several steerings matters
    several = [{"name": "first"}, {"name": "third"}]
    assert said("tiny", several) != said("tiny", several[::-1])
    with pytest.raises(openai.BadRequestError, match="names one steering and the field steering another"):
        said("tiny+first", {"name": "second"})


def test_models_lists_the_base_and_every_steering(api):
    assert [one.id for one in api.models.list()] == ["tiny", "tiny+first", "tiny+second", "tiny+third"]
    assert api.models.retrieve("tiny+first").id == "tiny+first"
    with pytest.raises(openai.NotFoundError):
        api.models.retrieve("gpt-4")


def test_two_choices_of_a_stream_are_told_apart(api):
    body = {"model": "tiny", "messages": MESSAGES, "n": 2, "seed": 11, "max_tokens": 9}
    whole = api.chat.completions.create(**body)
    texts = ["", ""]
    for part in api.chat.completions.create(**body, stream=True):
        for choice in part.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices]
    assert texts[0] != texts[1]


def test_a_stop_ends_the_text_before_it(api):
    body = {"model": "tiny", "prompt": "w1 w2", "max_tokens": 12, "logprobs": 0}
    answers = ((seed, api.completions.create(**body, seed=seed).choices[0]) for seed in range(100))
    # a text of different words, in which every token is visible
    seed, whole = next((s, a) for s, a in answers if len(set(a.text.split())) == 12)
    words = [word.strip() for word in whole.logprobs.tokens]
    # the last stop begins in one token and ends in another
    for stop in (f" {words[5]}", ["nowhere", f" {words[5]}"], f"{words[4]} {words[5][:2]}"):
        (first,) = (whole.text.index(one) for one in ([stop] if isinstance(stop, str) else stop) if one in whole.text)
        answer = api.completions.create(**body, seed=seed, stop=stop).choices[0]
        assert answer.text == whole.text[:first] and answer.finish_reason == "stop"
        parts = list(api.completions.create(**body, seed=seed, stop=stop, stream=True))
        assert "".join(part.choices[0].text for part in parts) == answer.text
        shown = [token for part in parts for token in part.choices[0].logprobs.tokens]
        assert shown == answer.logprobs.tokens == whole.logprobs.tokens[: len(shown)] and len(shown) >= 4
    assert api.completions.create(**body, seed=seed, stop="nowhere").choices[0].text == whole.text


def test_logprobs_are_those_of_the_drawn_and_of_the_best_tokens(api, served):
    import torch

    model, tokenizer = served.engine._model, served.engine._tokenizer
    body = {"model": "tiny", "seed": 2, "max_tokens": 6}
    answer = api.completions.create(prompt="w1 w2", logprobs=3, **body).choices[0]
    ids = tokenizer("w1 w2", return_tensors="pt")["input_ids"]
    assert "".join(answer.logprobs.tokens) == answer.text
    drawn = torch.tensor([[tokenizer.convert_tokens_to_ids(t.strip()) for t in answer.logprobs.tokens]])
    with torch.no_grad():
        scores = model(torch.cat([ids, drawn], dim=1)).logits.log_softmax(-1)[0, ids.shape[1] - 1 : -1]
    own = scores.gather(1, drawn[0][:, None])[:, 0]
    assert answer.logprobs.token_logprobs == pytest.approx(own.tolist(), abs=1e-4)
    # the best three, and the drawn token where it is none of them
    for found, wanted, row in zip(answer.logprobs.top_logprobs, scores.topk(3).values, own, strict=True):
        also = {*wanted.tolist(), row.item()}
        assert sorted(found.values()) == pytest.approx(sorted(also), abs=1e-4)
    assert max(map(len, answer.logprobs.top_logprobs)) == 4
    assert all(t in top for t, top in zip(answer.logprobs.tokens, answer.logprobs.top_logprobs, strict=True))
    offsets = answer.logprobs.text_offset
    ends = [*offsets[1:], len(answer.text)]
    assert [answer.text[a:b] for a, b in zip(offsets, ends, strict=True)] == answer.logprobs.tokens

    chat = {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2, **body}
    whole = api.chat.completions.create(**chat).choices[0].logprobs.content
    parts = api.chat.completions.create(**chat, stream=True)
    pieces = [token for part in parts if part.choices[0].logprobs for token in part.choices[0].logprobs.content]
    assert [token.token for token in pieces] == [token.token for token in whole] and len(whole) == 6
    assert all(len(token.top_logprobs) == 2 and bytes(token.bytes).decode() == token.token for token in whole)


def test_errors_have_the_types_of_the_client(api):
    body = {"model": "tiny", "prompt": "w1"}
    with pytest.raises(openai.NotFoundError) as found:
        api.completions.create(**{**body, "model": "gpt-4"})
    assert found.value.code == "model_not_found" and found.value.param == "model"
    with pytest.raises(openai.NotFoundError, match="no steering called 'nobody'"):
        api.completions.create(**body, extra_body={"steering": {"name": "nobody"}})
    with pytest.raises(openai.NotFoundError, match="no steering called 'nobody'"):
        api.completions.create(**{**body, "model": "tiny+nobody"})
    with pytest.raises(openai.BadRequestError, match="max_tokens is 5000; this server generates at most 40"):
        api.completions.create(**body, max_tokens=5000)
    with pytest.raises(openai.BadRequestError, match="'tools' is not supported"):
        tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
        api.chat.completions.create(model="tiny", messages=MESSAGES, tools=[tool])
    with pytest.raises(openai.BadRequestError, match="'response_format' is not supported"):
        api.chat.completions.create(model="tiny", messages=MESSAGES, response_format={"type": "json_object"})


def test_fields_without_an_effect_are_ignored(api):
    plain = api.completions.create(model="tiny", prompt="w1", temperature=0)
    more = {"user": "someone", "presence_penalty": 0, "best_of": 1, "logit_bias": {}, "metadata": {}, "n": None}
    adorned = api.completions.create(model="tiny", prompt="w1", temperature=0, extra_body=more)
    assert adorned.choices[0].text == plain.choices[0].text


def test_leaving_a_stream_frees_its_rows(slow):
    with client(slow) as api:
        stream = api.completions.create(model="tiny", prompt="w1", max_tokens=4000, n=4, temperature=0, stream=True)
        next(iter(stream))
        assert len(slow.engine._running) == 4
        before = slow.drawn
        stream.close()
        slow.idle()
        # without the disconnect there would be four times 4000
        assert slow.drawn - before < 4 * 1000
        assert api.completions.create(model="tiny", prompt="w1", max_tokens=2).usage.completion_tokens == 2


def test_a_full_queue_is_a_rate_limit(slow):
    body = {"model": "tiny", "prompt": "w1", "max_tokens": 4000, "temperature": 0, "n": 4}
    with client(slow) as api, ThreadPoolExecutor(2) as pool:
        running = [api.completions.create(**body, stream=True)]
        next(iter(running[0]))
        waiting = pool.submit(api.completions.create, **body, stream=True)
        until(lambda: len(slow.engine._waiting) == 4, "a full queue")
        with pytest.raises(openai.RateLimitError) as refused:
            api.completions.create(model="tiny", prompt="w1")
        assert refused.value.response.headers["retry-after"] == "1"
        assert refused.value.code == "queue_full"
        running[0].close()
        stream = waiting.result(PATIENCE)
        next(iter(stream))
        stream.close()
        slow.idle()
