"""Connections that send nothing, slowly or too many of them: they end, and lock nobody out."""

import http.client
import json
import socket
import time

import pytest

from repsurgery.serve import connection, guard
from repsurgery.serve.server import UNREAD_SECONDS, listen
from tests.lm.tiny_models import tiny_model, tiny_tokenizer
from tests.serve.conftest import endless
from tests.serve.running import PATIENCE, running, until


@pytest.fixture(scope="module")
def server():
    with running(tiny_model("llama"), tiny_tokenizer()) as server:
        yield server


def connected(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)


def closed(sock):
    """Return whether the server closes the connection before the test gives up."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_idle_connections_lock_nobody_out(server, monkeypatch):
    assert connection.MAX_CONNECTIONS <= 512
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 20)
    # nothing but the lack of room closes them
    monkeypatch.setattr(connection, "HEAD_SECONDS", 10 * PATIENCE)
    idle = [connected(server) for _ in range(25)]
    assert server.send("GET", "/health")[0] == 200
    assert server.complete(max_tokens=2)["choices"]
    until(lambda: len(server.server.server_state.connections) <= 20, "no more connections than allowed")
    # the oldest were closed to make room
    assert closed(idle[0])
    for sock in idle:
        sock.close()


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHost:"])
def test_a_connection_that_sends_no_request_is_closed(sent, server, monkeypatch):
    assert connection.HEAD_SECONDS <= 60
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.5)
    with connected(server) as sock:
        sock.sendall(sent)
        assert closed(sock)


def test_a_head_that_arrives_byte_by_byte_is_given_up(server, monkeypatch):
    monkeypatch.setattr(connection, "HEAD_SECONDS", 1.0)
    with connected(server) as sock, pytest.raises(OSError):
        # each byte comes sooner than the limit
        for byte in b"GET /health HTTP/1.1\r\nX: " + b"x" * 1000:
            sock.sendall(bytes([byte]))
            time.sleep(0.05)


def test_a_kept_connection_waits_for_its_next_request(server, monkeypatch):
    monkeypatch.setattr(connection, "HEAD_SECONDS", 3.0)
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    client.connect()
    sock = client.sock
    for _ in range(3):
        client.request("GET", "/health")
        answer = client.getresponse()
        assert (answer.status, answer.read()) == (200, b'{"status":"ready"}')
        time.sleep(1.2)
    assert client.sock is sock
    # uvicorn stops its own clock as soon as a byte has come
    sock.sendall(b"G")
    assert closed(sock)
    client.close()


@pytest.mark.usefixtures("unhurried")
def test_a_request_may_take_longer_than_its_head(monkeypatch):
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.1)
    with running(*endless(), max_new_tokens=4000) as server:
        began = time.monotonic()
        assert server.complete(max_tokens=400)["usage"]["completion_tokens"] == 400
        assert time.monotonic() - began > 0.1


def test_beyond_the_limit_of_connections_requests_are_refused(monkeypatch):
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 3)
    with running(*endless(), max_new_tokens=4000) as server:
        streams = [server.open_stream(prompt="w1", max_tokens=4000) for _ in range(3)]
        until(lambda: len(server.engine._running) == 3, "three running requests")
        status, headers, data = server.send("GET", "/health")
        assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
        assert json.loads(data)["error"]["code"] == "too_many_connections"
        for sock in streams:
            sock.close()
        server.idle()
        assert server.send("GET", "/health")[0] == 200


def test_a_slow_body_is_refused(server, monkeypatch):
    assert guard.BODY_SECONDS <= 60
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.3)
    with connected(server) as sock:
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        answer = sock.recv(4096)
        while b"}" not in answer:
            answer += sock.recv(4096)
    assert b" 408 " in answer.split(b"\r\n")[0] and b"did not arrive within 0.3 seconds" in answer


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such option")
def test_the_system_ends_connections_that_take_no_data():
    with listen("127.0.0.1", 0) as listener:
        seconds = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) / 1000
    assert seconds == UNREAD_SECONDS <= 120


def test_paths_and_methods_of_probes(server):
    assert server.send("HEAD", "/health")[::2] == (200, b"")
    # no redirect to a host that the client has named
    status, headers, _ = server.send("POST", "/v1/completions/", {"prompt": "w1"}, {"Host": "elsewhere.example"})
    assert status == 404 and "location" not in headers
