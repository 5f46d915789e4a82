"""Connections that send nothing, slowly or too many of them: they end, and lock nobody out."""

import http.client
import json
import socket
import threading
import time

import pytest

from repsurgery.serve import connection, engine, guard
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


def server_side(server, sock):
    """Return the server's end of a connection."""

    def ends():
        return [one for one in set(server.server.server_state.connections) if one.client == sock.getsockname()]

    until(ends, "the connection")
    return ends()[0]


def time_is_up(end):
    """Let the time for the head of a request be over, and wait until the server has acted on it."""
    done = threading.Event()
    end.loop.call_soon_threadsafe(lambda: (end._deadline.cancel(), end._give_up(), done.set()))
    assert done.wait(PATIENCE)


def test_a_kept_connection_waits_for_its_next_request(server, monkeypatch):
    monkeypatch.setattr(connection, "HEAD_SECONDS", 10 * PATIENCE)
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    client.connect()
    sock, end = client.sock, server_side(server, client.sock)
    end.timeout_keep_alive = 10 * PATIENCE
    deadlines = []
    for _ in range(3):
        client.request("GET", "/health")
        answer = client.getresponse()
        assert (answer.status, answer.read()) == (200, b'{"status":"ready"}')
        until(lambda: end.waiting, "the end of the request")
        deadlines.append(end._deadline.when())
    # the time begins anew with each request
    assert client.sock is sock and deadlines == sorted(set(deadlines))
    # uvicorn stops its own clock as soon as a byte has come, and this one runs on
    sock.sendall(b"G")
    until(lambda: end.conn.trailing_data[0] == b"G", "the byte")
    assert end._deadline.when() == deadlines[-1] and not end._deadline.cancelled()
    time_is_up(end)
    assert closed(sock)
    client.close()


def test_a_request_may_take_longer_than_its_head(monkeypatch):
    monkeypatch.setattr(connection, "HEAD_SECONDS", 10 * PATIENCE)
    asked, over, draw = threading.Event(), threading.Event(), engine.next_tokens

    def draw_later(rows, logits):
        asked.set()
        assert over.wait(PATIENCE)
        return draw(rows, logits)

    monkeypatch.setattr(engine, "next_tokens", draw_later)
    with running(*endless()) as server, server.open_stream(prompt="w1", max_tokens=3) as sock:
        assert asked.wait(PATIENCE)
        time_is_up(server_side(server, sock))
        over.set()
        answer = b""
        while b"[DONE]" not in answer:
            answer += (came := sock.recv(4096))
            assert came, answer
    assert b'"finish_reason":"length"' in answer


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
