import pytest
import torch

from tests.lm.tiny_models import tiny_model, tiny_tokenizer


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    # several test processes on few cores are faster with one thread each
    torch.set_num_threads(1)


@pytest.fixture
def model():
    return tiny_model("llama")


@pytest.fixture
def tokenizer():
    return tiny_tokenizer()
