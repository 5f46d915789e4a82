"""From the first byte on the port to the last event: loading, health, shutdown, memory, and the command itself."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

import repsurgery as rs
from repsurgery.errors import ModelError
from repsurgery.serve.limits import Limits
from repsurgery.serve.server import Server, listen
from repsurgery.serve.service import Service
from repsurgery.serve.sources import Sources
from tests.lm.tiny_models import tiny_model, tiny_tokenizer
from tests.serve.conftest import endless
from tests.serve.running import PATIENCE, Running, running, steering, until


def test_the_port_answers_503_until_the_model_is_loaded():
    loaded = threading.Event()

    def load():
        assert loaded.wait(PATIENCE)
        return tiny_model("llama"), tiny_tokenizer()

    service, listener = Service(load, "tiny"), listen("127.0.0.1", 0)
    server = Server(service)
    running = Running(server, listener.getsockname()[1])
    thread = threading.Thread(target=server.run_on, args=(listener,), daemon=True)
    thread.start()
    try:
        assert running.send("GET", "/health")[::2] == (503, b'{"status":"loading"}')
        status, answer, headers = running.post("/v1/completions", prompt="w1")
        assert (status, answer["error"]["code"], headers["retry-after"]) == (503, "loading", "2")
        assert running.send("GET", "/v1/models")[0] == 503
        loaded.set()
        until(lambda: running.send("GET", "/health")[0] == 200, "a ready server")
        assert running.complete()["choices"]
    finally:
        loaded.set()
        server.should_exit = True
        thread.join(PATIENCE)


def test_a_model_that_cannot_be_loaded_ends_the_server():
    def load():
        raise ModelError("no such model")

    with pytest.raises(ModelError, match="no such model"):
        Server(Service(load, "tiny")).run_on(listen("127.0.0.1", 0))
    encoder = Service(lambda: (tiny_model("bert"), tiny_tokenizer()), "tiny")
    with pytest.raises(ModelError, match="is not a decoder"):
        Server(encoder).run_on(listen("127.0.0.1", 0))


def test_asked_to_stop_it_refuses_new_requests_and_finishes_running_ones():
    with running(*endless(), max_new_tokens=4000, shutdown_seconds=PATIENCE) as server:
        with server.stream(prompt="w1", max_tokens=600, temperature=0) as stream:
            first = stream.readline()
            server.server.ask_to_stop()
            until(lambda: server.service.phase == "stopping", "the first step of the shutdown")
            status, answer, headers = server.post("/v1/completions", prompt="w1")
            assert (status, answer["error"]["code"]) == (503, "server_shutdown") and "retry-after" in headers
            assert server.send("GET", "/health")[0] == 503
            events = [first, *stream.readlines()]
        assert sum(event.startswith(b"data: {") for event in events) > 300
        assert b'"finish_reason":"length"' in events[-4] and events[-2].strip() == b"data: [DONE]"


@pytest.mark.usefixtures("unhurried")
def test_streams_that_take_too_long_to_stop_end_with_an_event():
    with running(*endless(), max_new_tokens=4000, shutdown_seconds=0.2) as server:
        with server.stream(prompt="w1", max_tokens=4000, temperature=0) as stream:
            stream.readline()
            server.server.ask_to_stop()
            events = [line for line in stream.readlines() if line.strip()]
        assert json.loads(events[-2][6:])["error"]["code"] == "server_shutdown"
        assert events[-1].strip() == b"data: [DONE]"


def test_metrics_count_what_was_served(folder):
    with running(tiny_model("llama"), tiny_tokenizer(), sources=Sources(folder=folder)) as server:
        server.complete("w1 w2", max_tokens=5, temperature=0, n=2)
        server.complete(steering={"name": "first"}, max_tokens=3, temperature=0)
        server.post("/v1/completions", prompt=5)
        server.idle()
        lines = server.send("GET", "/metrics")[2].decode().splitlines()
    for line in (
        'repsurgery_requests_total{path="/v1/completions",status="200"} 2.0',
        'repsurgery_requests_total{path="/v1/completions",status="400"} 1.0',
        'repsurgery_steered_requests_total{steering=""} 1.0',
        'repsurgery_steered_requests_total{steering="first"} 1.0',
        "repsurgery_prompt_tokens_total 6.0",
        "repsurgery_generated_tokens_total 13.0",
        "repsurgery_queue_rows 0.0",
        "repsurgery_batch_rows 0.0",
        "repsurgery_time_to_first_token_seconds_count 2.0",
    ):
        assert line in lines


def test_clients_that_leave_do_not_disturb_those_that_stay(slow):
    bodies = [
        {"prompt": f"w{i}", "max_tokens": 60, "seed": i, "steering": {"name": name}}
        for i, name in enumerate(["first", "second", "third"])
    ]
    alone = [slow.complete(**body)["choices"] for body in bodies]
    rng = random.Random(0)
    waits = [rng.random() / 50 for _ in range(60)]

    def leave(seconds):
        sock = slow.open_stream(prompt="w5 w6 w7", max_tokens=4000)
        time.sleep(seconds)
        sock.close()

    def stay(i):
        until(lambda: len(slow.engine._waiting) < 3, "room in the queue")
        status, answer, _ = slow.post("/v1/completions", **bodies[i % 3])
        return status == 429 or answer["choices"] == alone[i % 3]

    with ThreadPoolExecutor(2) as leaving, ThreadPoolExecutor(2) as staying:
        gone = leaving.map(leave, waits)
        assert all(staying.map(stay, range(30)))
        list(gone)
    slow.idle()


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "tiny"
    model, tokenizer = endless()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


class Process:
    """The command ``repsurgery serve`` as a user runs it."""

    def __init__(self, *words, program=("-m", "repsurgery"), **variables):
        self.port = free_port()
        command = [sys.executable, *program, "serve", "--port", str(self.port), *map(str, words)]
        environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", **variables}
        self.child = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def health(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=PATIENCE) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    def ready(self):
        until(lambda: self.health() == 200 or self.child.poll() is not None, "a ready server")
        assert self.child.poll() is None, self.child.communicate()
        return self

    def stream(self, **body):
        data = json.dumps({"stream": True, **body}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/completions", data, headers)
        return urllib.request.urlopen(request, timeout=PATIENCE)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.child.poll() is None:
            self.child.kill()
        self.child.communicate()


UNHURRIED = """
import time
from repsurgery.serve import engine

def draw(rows, logits, draw=engine.next_tokens):
    time.sleep(0.05)
    return draw(rows, logits)

engine.next_tokens = draw
from repsurgery.cli import main
main()
"""
"""The command with steps so slow that 4,000 of them take minutes, on any machine."""


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_sigterm_lets_streams_finish(model_folder, tmp_path):
    rs.save(steering(1), tmp_path / "kinder.safetensors")
    words = ("--model", model_folder, "--steering", tmp_path / "kinder.safetensors", "--shutdown-seconds", PATIENCE)
    with Process(*words) as server:
        server.ready()
        body = {"prompt": "w1", "max_tokens": 400, "seed": 0, "steering": {"name": "kinder"}, "model": "tiny"}
        with server.stream(**body) as stream:
            stream.readline()
            server.child.send_signal(signal.SIGTERM)
            events = [line for line in stream.read().split(b"\n\n") if line.strip()]
        assert b'"finish_reason":"length"' in events[-2] and events[-1].endswith(b"[DONE]")
        _, log = server.child.communicate(timeout=PATIENCE)
        assert server.child.returncode == 0
        assert "tiny is ready; steerings: kinder." in log and "Traceback" not in log


def test_sigterm_ends_long_streams_with_an_event(model_folder):
    words = ("--model", model_folder, "--max-new-tokens", 4000, "--shutdown-seconds", 0.3)
    with Process(*words, program=("-c", UNHURRIED)) as server:
        server.ready()
        with server.stream(prompt="w1", max_tokens=4000, temperature=0) as stream:
            stream.readline()
            server.child.send_signal(signal.SIGTERM)
            events = [line for line in stream.read().split(b"\n\n") if line.strip()]
        assert b"server_shutdown" in events[-2] and events[-1].endswith(b"[DONE]")
        _, log = server.child.communicate(timeout=PATIENCE)
        assert server.child.returncode == 0 and "Traceback" not in log


def test_ctrl_c_stops_the_server_with_130(model_folder):
    with Process("--model", model_folder) as server:
        server.ready()
        server.child.send_signal(signal.SIGINT)
        _, log = server.child.communicate(timeout=PATIENCE)
        assert server.child.returncode == 130 and log.strip().endswith("Stopped.")
        assert "Traceback" not in log


def test_a_second_signal_ends_running_streams_at_once(model_folder):
    words = ("--model", model_folder, "--max-new-tokens", 4000, "--shutdown-seconds", PATIENCE)
    with Process(*words, program=("-c", UNHURRIED)) as server:
        server.ready()
        with server.stream(prompt="w1", max_tokens=4000, n=8, temperature=0) as stream:
            stream.readline()
            server.child.send_signal(signal.SIGTERM)
            until(lambda: server.health() == 503, "the first step of the shutdown")
            server.child.send_signal(signal.SIGTERM)
            rest = stream.read()
        assert b'"finish_reason":"length"' not in rest
        _, log = server.child.communicate(timeout=PATIENCE)
        assert server.child.returncode == 0 and "Traceback" not in log


LOADING = """
import atexit, threading
from repsurgery import lm

def load(*name, **how):
    print("loading", flush=True)
    threading.Event().wait()

lm.load = load
atexit.register(print, "torn down", flush=True)
from repsurgery.cli import main
main()
"""


def test_a_signal_while_the_model_is_loaded_ends_the_process():
    with Process(program=("-c", LOADING)) as server:
        assert server.child.stdout.readline() == "loading\n"
        # who answers has its signal handlers
        until(lambda: server.health() == 503, "a server that answers")
        server.child.send_signal(signal.SIGTERM)
        rest, log = server.child.communicate(timeout=PATIENCE)
        # the interpreter is not torn down under the thread that loads
        assert server.child.returncode == 0 and rest == "" and "Traceback" not in log


def test_a_key_may_come_from_the_environment(model_folder):
    # with a newline, as a file has it
    with Process("--model", model_folder, REPSURGERY_API_KEY="sesame\n") as server:
        server.ready()
        headers = {"Authorization": "Bearer sesame"}
        request = urllib.request.Request(f"http://127.0.0.1:{server.port}/v1/models", headers=headers)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError, match="401"):
            server.stream(prompt="w1")


def test_limits_are_positive():
    from repsurgery.errors import ParameterError

    for name in Limits.__slots__:
        for value in (0, -1, float("inf"), float("nan")):
            with pytest.raises(ParameterError, match=f"{name} is .*; it must be a positive number"):
                Limits(**{name: value})
