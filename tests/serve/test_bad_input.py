"""Bad requests get a clear status and message; the server stays up, and nothing passes between requests."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import repsurgery as rs
from repsurgery.serve import engine as engine_module
from repsurgery.serve.server import listen
from repsurgery.serve.sources import Sources
from tests.lm.tiny_models import tiny_model, tiny_tokenizer
from tests.lm.tools import random_map
from tests.serve.conftest import endless
from tests.serve.running import PATIENCE, running, steering, until

COMPLETION, CHAT = "/v1/completions", "/v1/chat/completions"
PROMPT = {"prompt": "w1 w2"}

BAD = {
    "unknown steering": (404, "no steering called", {**PROMPT, "steering": {"name": "nobody"}}),
    "path as name": (404, "no steering called", {**PROMPT, "steering": {"name": "../../../etc/passwd"}}),
    "path to a real file": (404, "no steering called", {**PROMPT, "steering": {"name": "../steerings0/first"}}),
    "path in model": (404, "no steering called", {**PROMPT, "model": "tiny+../first"}),
    "NaN": (400, "finite number", b'{"prompt": "w1", "steering": {"name": "first", "strength": NaN}}'),
    "infinity": (400, "finite number", b'{"prompt": "w1", "steering": {"name": "first", "strength": 1e999}}'),
    "huge strength": (400, "less than or equal to 100", {**PROMPT, "steering": {"name": "first", "strength": 1e9}}),
    "strength as text": (400, "valid number", {**PROMPT, "steering": {"name": "first", "strength": "1"}}),
    "strange positions": (400, "'generated'", {**PROMPT, "steering": {"name": "first", "positions": "some"}}),
    "turns of a plain text": (
        400,
        "needs a conversation",
        {**PROMPT, "steering": {"name": "first", "positions": "assistant"}},
    ),
    "strange field of steering": (
        400,
        "fields name, strength, positions",
        {**PROMPT, "steering": {"name": "first", "power": 1}},
    ),
    "steering as text": (400, "it must be an object such as", {**PROMPT, "steering": "first"}),
    "misspelt steering": (400, "did you mean 'steering'?", {**PROMPT, "steer": {"name": "first"}}),
    "strength in the wrong place": (400, "'strength' is not supported", {**PROMPT, "strength": 2}),
    "too many steerings": (400, "at most 8", {**PROMPT, "steering": [{"name": "first"}] * 9}),
    "no prompt": (400, "prompt: Field required", {}),
    "empty prompt": (400, "a prompt is empty", {"prompt": "  "}),
    "tokens": (400, "prompts of token numbers are not accepted", {"prompt": [1, 2, 3]}),
    "lists of tokens": (400, "prompts of token numbers are not accepted", {"prompt": [[1, 2], [3]]}),
    "half a character": (400, "half of a surrogate pair", b'{"prompt": "w1 \\ud800"}'),
    "beyond the context": (400, "the context holds 64", {"prompt": "w1 " * 64}),
    "no room for new tokens": (400, "the context holds 64", {"prompt": "w1 " * 40, "max_tokens": 30}),
    "too many new tokens": (400, "at most 40 tokens", {**PROMPT, "max_tokens": 41}),
    "no new tokens": (400, "greater than or equal to 1", {**PROMPT, "max_tokens": 0}),
    "true as a number": (400, "valid integer", {**PROMPT, "max_tokens": True}),
    "negative temperature": (400, "greater than or equal to 0", {**PROMPT, "temperature": -1}),
    "tiny temperature": (400, "send 0 for greedy", {**PROMPT, "temperature": 1e-300}),
    "top_p of zero": (400, "greater than 0", {**PROMPT, "top_p": 0}),
    "too many stops": (400, "at most 4 strings", {**PROMPT, "stop": ["a"] * 5}),
    "empty stop": (400, "1 to 256 characters", {**PROMPT, "stop": ""}),
    "too many choices": (400, "less than or equal to 128", {**PROMPT, "n": 1000}),
    "more rows than may wait": (400, "at most 128", {"prompt": ["w1"] * 10, "n": 100}),
    "huge seed": (400, "seed", {**PROMPT, "seed": 2**63}),
    "too many logprobs": (400, "less than or equal to 5", {**PROMPT, "logprobs": 6}),
    "echo": (400, "'echo' is not supported", {**PROMPT, "echo": True}),
    "penalty": (400, "'presence_penalty' is not supported", {**PROMPT, "presence_penalty": 0.5}),
    "invalid JSON": (400, "not valid JSON", b'{"prompt": "w1"'),
    "not JSON at all": (400, "not valid JSON", b"\xff\xfe\x00"),
    "a list": (400, "must be a JSON object", b"[]"),
    "no body": (400, "Field required", b""),
    "deeply nested": (400, "nested too deeply", b'{"prompt": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"),
    "nested in an ignored field": (400, "too deeply", b'{"prompt": "w1", "user": ' + b"[" * 3000 + b"]" * 3000 + b"}"),
    "endless number": (
        400,
        "not valid JSON, or is nested too deeply",
        b'{"prompt": "w1", "seed": ' + b"9" * 10_000 + b"}",
    ),
    "many fields": (400, "at most 64", {f"field{i}": i for i in range(10_000)}),
    "many prompts": (400, "1 to 1024 strings", {"prompt": ["w1"] * 5000}),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_get_a_clear_status_and_message(case, served):
    status, message, body = BAD[case]
    found, _, data = served.send("POST", COMPLETION, body)
    error = json.loads(data)["error"]
    assert (found, error["type"]) == (status, "invalid_request_error")
    assert message in error["message"] and len(error["message"]) < 400
    assert set(error) == {"message", "type", "param", "code"}
    for leak in (b"Traceback", b".py", b"/tmp", b"/home", b"repsurgery/"):
        assert leak not in data
    assert served.complete(max_tokens=2, temperature=0)["usage"]["completion_tokens"] == 2


CONVERSATIONS = {
    "no messages": ("1 to 1024 messages", []),
    "text": ("1 to 1024 messages", "hello"),
    "texts": ("an object with role and content", ["hello"]),
    "unknown role": ("must be one of system, user, assistant", [{"role": "tool", "content": "w1"}]),
    "no content": ("must be a string or a list", [{"role": "user"}]),
    "picture": (
        "only parts of type 'text'",
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
    ),
    "beyond the context": ("the context holds 64", [{"role": "user", "content": "w1 " * 70}]),
}


@pytest.mark.parametrize("case", CONVERSATIONS)
def test_bad_conversations_get_a_clear_message(case, served):
    message, messages = CONVERSATIONS[case]
    status, answer, _ = served.post(CHAT, messages=messages)
    assert status == 400 and message in answer["error"]["message"]
    assert answer["error"]["param"] == "messages"


def test_a_tokenizer_without_a_chat_template_says_so():
    with running(tiny_model("llama"), tiny_tokenizer()) as server:
        status, answer, _ = server.post(CHAT, messages=[{"role": "user", "content": "w1"}])
    assert status == 400 and "has no chat template" in answer["error"]["message"]


def test_unknown_paths_and_methods_have_the_same_form(served):
    for method, path, status in (("GET", "/nothing", 404), ("GET", COMPLETION, 405), ("POST", "/v1/nothing", 404)):
        found, _, data = served.send(method, path, b"{}" if method == "POST" else None)
        assert found == status and set(json.loads(data)) == {"error"}


def test_an_oversized_body_is_refused():
    with running(tiny_model("llama"), tiny_tokenizer(), max_body_bytes=1000) as server:
        status, _, data = server.send("POST", COMPLETION, {"prompt": "w1 " * 1000})
        assert status == 413 and "larger than 1000 bytes" in json.loads(data)["error"]["message"]
        # a body whose length is not announced is counted as it arrives
        sock = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        sock.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + b"400\r\n" + b" " * 1024 + b"\r\n0\r\n\r\n")
        assert b" 413 " in sock.recv(4096).split(b"\r\n")[0]
        sock.close()
        assert server.complete(max_tokens=2)["choices"]


def test_a_wrong_key_is_refused(folder):
    with running(tiny_model("llama"), tiny_tokenizer(), api_key="sésame") as server:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic x"}):
            for path in ("/v1/models", "/metrics", "/openapi.json"):
                status, _, data = server.send("GET", path, headers=headers)
                assert status == 401 and json.loads(data)["error"]["code"] == "invalid_api_key"
            assert server.post(COMPLETION, headers, **PROMPT)[0] == 401
        assert server.send("GET", "/health")[0] == 200
        key = {"Authorization": b"Bearer " + "sésame".encode()}
        assert server.send("GET", "/v1/models", headers=key)[0] == 200


def test_a_steering_that_overflows_ends_its_own_request_only(tmp_path):
    huge = rs.SteeringFunction({None: rs.Translation([3e38] * 16)}).with_origin(site="layers.0")
    rs.save(huge, tmp_path / "huge.safetensors")
    with running(tiny_model("llama"), tiny_tokenizer(), sources=Sources(folder=tmp_path)) as server:
        alone = server.complete(temperature=0, max_tokens=20)["choices"]
        answers = []
        beside = threading.Thread(target=lambda: answers.append(server.complete(temperature=0, max_tokens=20)))
        beside.start()
        status, answer, _ = server.post(COMPLETION, **PROMPT, steering={"name": "huge", "strength": 100})
        beside.join()
        assert status == 400 and answer["error"]["code"] == "steering_not_finite"
        assert "Lower the strength" in answer["error"]["message"]
        assert answers[0]["choices"] == alone


def test_a_damaged_or_foreign_file_is_left_out(tmp_path, caplog):
    model = tiny_model("llama")
    rs.save(steering(1), tmp_path / "good.safetensors")
    wide = rs.SteeringFunction({None: random_map(24)}).with_origin(site="layers.0")
    rs.save(wide, tmp_path / "wide.safetensors")
    rs.save(steering(2).with_origin(site="layers.9"), tmp_path / "deep.safetensors")
    rs.save(steering(3, model="another-model", configuration="0" * 64), tmp_path / "foreign.safetensors")
    rs.save(rs.ClassMoments.of([[0.0], [1.0], [2.0]], [0, 1, 0]), tmp_path / "moments.safetensors")
    (tmp_path / "damaged.safetensors").write_bytes((tmp_path / "good.safetensors").read_bytes()[:-3])
    (tmp_path / "empty.safetensors").touch()
    (tmp_path / "folder.safetensors").mkdir()
    (tmp_path / "notes.txt").write_text("no steering")
    with running(model, tiny_tokenizer(), sources=Sources(folder=tmp_path)) as server:
        listed = [one["id"] for one in json.loads(server.send("GET", "/v1/models")[2])["data"]]
        assert listed == ["tiny", "tiny+good"]
        for name in ("wide", "deep", "foreign", "moments", "damaged", "empty"):
            status, answer, _ = server.post(COMPLETION, **PROMPT, steering={"name": name})
            assert status == 404 and "cannot be used with this model" in answer["error"]["message"]
            assert str(tmp_path) not in str(answer)
            assert f"{name}.safetensors is left out" in caplog.text
        assert server.complete(steering={"name": "good"})["choices"]


def test_files_are_reloaded_and_running_requests_keep_theirs(tmp_path, monkeypatch):
    file = tmp_path / "mood.safetensors"
    rs.save(steering(1), file)
    body = {"prompt": "w1", "seed": 4, "max_tokens": 40, "steering": {"name": "mood"}}
    gate, draw = threading.Event(), engine_module.next_tokens
    gate.set()
    monkeypatch.setattr(engine_module, "next_tokens", lambda rows, logits: gate.wait(PATIENCE) and draw(rows, logits))
    with running(*endless(), sources=Sources(folder=tmp_path)) as server, ThreadPoolExecutor(1) as pool:
        before = server.complete(**body)["choices"][0]["text"]
        with server.stream(**body) as stream:
            events = [stream.readline()]
            gate.clear()
            rs.save(steering(2), file)
            later = pool.submit(server.complete, **body)
            until(lambda: server.engine._waiting, "a waiting request")
            gate.set()
            events += stream.readlines()
        pieces = [json.loads(event[6:])["choices"][0]["text"] for event in events if event.startswith(b"data: {")]
        after = later.result(PATIENCE)["choices"][0]["text"]
        assert "".join(pieces) == before != after and len(pieces) > 20
        assert server.complete(**body)["choices"][0]["text"] == after
        # a new file appears, and one that is gone is unknown
        rs.save(steering(3), tmp_path / "newer.safetensors")
        assert server.complete(**{**body, "steering": {"name": "newer"}, "max_tokens": 5})["choices"]
        file.unlink()
        assert server.post(COMPLETION, **body)[0] == 404
        # what replaces a file with damage is not served, nor is what was there before
        (tmp_path / "newer.safetensors").write_bytes(b"damaged")
        status, answer, _ = server.post(COMPLETION, **{**body, "steering": {"name": "newer"}})
        assert (status, answer["error"]["code"]) == (404, "steering_not_usable")


def test_a_folder_that_vanishes_keeps_its_steerings(tmp_path, caplog):
    folder = tmp_path / "steerings"
    folder.mkdir()
    rs.save(steering(1), folder / "kept.safetensors")
    body = {"prompt": "w1", "temperature": 0, "steering": {"name": "kept"}}
    with running(tiny_model("llama"), tiny_tokenizer(), sources=Sources(folder=folder)) as server:
        before = server.complete(**body)["choices"]
        folder.rename(tmp_path / "elsewhere")
        assert [server.complete(**body)["choices"] for _ in range(2)] == [before, before]
        assert caplog.text.count("is gone; its steerings stay loaded") == 1
        (tmp_path / "elsewhere").rename(folder)
        assert server.complete(**body)["choices"] == before


def test_interleaved_requests_give_what_they_give_alone(served):
    bodies = [
        {"prompt": "w1 w2", "max_tokens": 30, "temperature": 0, "steering": {"name": name}}
        for name in ("first", "third")
    ]
    alone = [served.complete(**body)["choices"][0]["text"] for body in bodies]
    assert alone[0] != alone[1]
    for _ in range(5):
        found = [None, None]

        def ask(i, found=found):
            found[i] = served.streamed(**bodies[i])

        threads = [threading.Thread(target=ask, args=(i,)) for i in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == alone


def test_a_failing_pass_ends_its_requests_and_no_others(served, monkeypatch):
    draw, failing = engine_module.next_tokens, [True]

    def fails_once(rows, logits):
        if failing:
            failing.clear()
            raise RuntimeError("a secret of the machine")
        return draw(rows, logits)

    monkeypatch.setattr(engine_module, "next_tokens", fails_once)
    status, answer, _ = served.post(COMPLETION, **PROMPT)
    assert status == 500 and answer["error"]["type"] == "server_error" and "secret" not in str(answer)
    assert served.complete()["choices"]
    served.idle()


@pytest.mark.usefixtures("unhurried")
def test_a_request_that_takes_too_long_is_ended():
    with running(*endless(), max_new_tokens=4000, request_seconds=2.0) as server:
        status, answer, _ = server.post(COMPLETION, **PROMPT, max_tokens=4000, n=8)
        assert (status, answer["error"]["code"]) == (504, "timeout")
        *events, last, done = server.events(**PROMPT, max_tokens=4000, n=8)
        assert events and last["error"]["code"] == "timeout" and done == "[DONE]"
        server.idle()


def test_a_disconnect_frees_its_rows(slow):
    for stream in (True, False):
        sock = slow.open_stream(prompt="w1", max_tokens=4000, n=4, temperature=0, stream=stream)
        until(lambda: len(slow.engine._running) == 4, "a full batch")
        before = slow.drawn
        sock.close()
        slow.idle()
        # without the disconnect there would be four times 4000
        assert slow.drawn - before < 4 * 1000


def test_a_client_that_never_reads_is_cut_off():
    listener = listen("127.0.0.1", 0)
    # small buffers of the system, so that little output is enough to fill them
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with running(*endless(), listener=listener, max_new_tokens=4000, max_unread=50) as server:
        silent = socket.socket()
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.connect(("127.0.0.1", server.port))
        data = json.dumps({**PROMPT, "max_tokens": 4000, "n": 8, "stream": True}).encode()
        head = f"POST {COMPLETION} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
        silent.sendall(f"{head}{len(data)}\r\n\r\n".encode() + data)
        until(lambda: server.engine._running, "a running request")
        began = time.monotonic()
        # others are served meanwhile, and the silent request is ended long before its 8 x 4000 tokens
        assert server.complete(max_tokens=5)["usage"]["completion_tokens"] == 5
        server.idle()
        assert server.drawn < 8 * 4000, time.monotonic() - began
        silent.close()
