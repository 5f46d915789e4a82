import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    # several test processes on few cores are faster with one thread each
    torch.set_num_threads(1)
