"""A server in a thread of this process, on a port that the system chooses, and plain clients for it."""

import http.client
import json
import socket
import threading
import time
from contextlib import contextmanager

import repsurgery as rs
from repsurgery.serve.limits import Limits
from repsurgery.serve.server import Server, listen
from repsurgery.serve.service import Service
from repsurgery.serve.sources import Sources
from tests.lm.tiny_models import WIDTH, tiny_tokenizer
from tests.lm.tools import random_map

PATIENCE = 240.0
"""Seconds after which a test that waits for something fails."""
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }} w1 {{ m['content'] }} w2 {% endfor %}"
    "{% if add_generation_prompt %}assistant w1 {% endif %}"
)


def until(condition, what="the condition"):
    """Wait for a condition, boundedly."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"{what} did not come true"
        time.sleep(0.01)


def chat_tokenizer():
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def steering(seed, *, size=0.5, site="layers.0", **how):
    """Return a random steering that knows its site."""
    function = rs.SteeringFunction({None: random_map(WIDTH, seed=seed, size=size)})
    return function.with_origin(site=site, **how)


class Running:
    """A started server."""

    def __init__(self, server, port):
        self.server, self.service, self.port = server, server.service, port
        self.base_url = f"http://127.0.0.1:{port}/v1"

    @property
    def engine(self):
        return self.service._engine

    def send(self, method, path, body=None, headers=None):
        """Return status, headers and the body of one request; a body of bytes is sent as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def post(self, path, headers=None, **body):
        status, found, data = self.send("POST", path, body, headers)
        return status, json.loads(data), found

    def complete(self, prompt="w1 w2", **body):
        """Return the whole answer of a completion that must succeed."""
        status, answer, _ = self.post("/v1/completions", prompt=prompt, **body)
        assert status == 200, answer
        return answer

    def open_stream(self, path="/v1/completions", **body):
        """Return a socket on which the stream of a request arrives."""
        data = json.dumps({"stream": True, **body}).encode()
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        sock.sendall(head.encode() + data)
        return sock

    @contextmanager
    def stream(self, path="/v1/completions", **body):
        """Yield the response of a stream, to be read line by line."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        data = json.dumps({"stream": True, **body}).encode()
        connection.request("POST", path, data, {"Content-Type": "application/json"})
        try:
            yield connection.getresponse()
        finally:
            connection.close()

    def events(self, path="/v1/completions", **body):
        """Return the decoded events of a stream; the last is "[DONE]"."""
        status, headers, data = self.send("POST", path, {"stream": True, **body})
        assert status == 200, data
        assert headers["content-type"].startswith("text/event-stream")
        lines = [line.removeprefix("data: ") for line in data.decode().split("\n\n") if line]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]

    def streamed(self, **body):
        """Return the text of the first choice of a stream that must end well."""
        *events, done = self.events(**body)
        assert done == "[DONE]" and events[-1]["choices"][0]["finish_reason"]
        return "".join(event["choices"][0]["text"] for event in events)

    @property
    def drawn(self):
        """The number of tokens that were drawn since the start."""
        return self.service.metrics._drawn._value.get()

    def idle(self):
        until(lambda: not self.engine._running and not self.engine._waiting, "an empty batch")


@contextmanager
def running(
    model, tokenizer, *, name="tiny", sources=None, api_key=None, listener=None, engine="transformers", **limits
):
    """Serve a model while the block runs."""
    limits = Limits(**{"request_seconds": PATIENCE, **limits})
    service = Service(lambda: (model, tokenizer), name, sources or Sources(), limits, engine=engine)
    server = Server(service, api_key=api_key)
    listener = listener or listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    thread = threading.Thread(target=server.run_on, args=(listener,), daemon=True)
    thread.start()
    try:
        until(lambda: service.phase == "ready" or service.failure or not thread.is_alive(), "a ready server")
        assert service.failure is None
        yield Running(server, port)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()
