import time

import pytest
import torch

from repsurgery import lm
from repsurgery.affine import Translation
from repsurgery.lm import twins as twins_module
from repsurgery.lm.twins import each, one_thread_each, twins
from tests.lm.tiny_models import WIDTH, tiny_model, tiny_tokenizer


@pytest.fixture
def pair(monkeypatch):
    monkeypatch.setattr(twins_module, "_cores", lambda most: most)
    return twins(tiny_model("llama"), tiny_tokenizer())


def test_twins_share_weights_and_no_hooks(pair):
    first, second = pair
    assert all(a is b for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True))
    tokens = torch.tensor([[1, 5, 6, 7]])
    with torch.no_grad():
        base = second.model(tokens).logits
        with lm.steer(first.model, {"final": Translation([3.0] * WIDTH)}):
            assert torch.equal(second.model(tokens).logits, base)
            assert not torch.equal(first.model(tokens).logits, base)


def test_results_come_in_the_order_of_the_jobs(pair):
    assert each(lambda twin, job: job**2, range(20), pair) == [n**2 for n in range(20)]


def test_an_error_of_a_job_reaches_the_caller_and_the_rest_is_dropped(pair):
    done = []

    def work(twin, job):
        done.append(job)
        if job == 0:
            raise ValueError("no")
        time.sleep(0.01)

    with pytest.raises(ValueError, match="no"):
        each(work, range(1000), pair[:1])
    assert len(done) < 1000


def test_threads_are_as_before_afterwards():
    before = torch.get_num_threads()
    with pytest.raises(KeyError), one_thread_each():
        assert torch.get_num_threads() == 1
        raise KeyError
    assert torch.get_num_threads() == before
