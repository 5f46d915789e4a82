"""Hundreds of different requests leave nothing behind: no object, and no tensor."""

import gc
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import torch

from repsurgery.serve.steerings import KEPT_PLANS

NAMES = [None, "first", "second", "third"]


def ask(server, i):
    """Send the i-th request; no two have the same strength."""
    name = NAMES[i % 4]
    body = {"prompt": f"w{i % 40} w2", "max_tokens": 4, "seed": i}
    body |= {"steering": {"name": name, "strength": i / 1000}} if name else {}
    return bool(server.events(**body) if i % 3 == 0 else server.complete(**body)["choices"])


def held(server, requests):
    """Send requests, ten at a time; return the bytes of Python and the number of tensors that then exist.

    The batch is empty after every twenty, so that whatever is kept of a batch is kept many times.
    """
    with ThreadPoolExecutor(10) as pool:
        for start in range(0, len(requests), 20):
            assert all(pool.map(lambda i: ask(server, i), requests[start : start + 20]))
            server.idle()
    # a last request, so that what the engine keeps of its batch is the same each time
    assert ask(server, 0)
    server.idle()
    gc.collect()
    return tracemalloc.get_traced_memory()[0], sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())


def test_500_requests_leave_no_memory_behind(served):
    tracemalloc.start()
    try:
        before, tensors = held(served, range(1, 101))
        after, tensors_after = held(served, range(101, 601))
    finally:
        tracemalloc.stop()
    # a request leaves less than a token's row behind; one that kept its answer or its map would leave kilobytes
    assert after - before < 500 * 500
    # a batch that was kept would leave a key and a value of every layer, a plan the tensors of its map
    assert abs(tensors_after - tensors) < 40
    assert len(served.service._steerings._plans) <= KEPT_PLANS < 100
