"""Shards in a folder; a Ray and a Dask cluster per module, started when a test first asks for one."""

import pytest
import torch

from repsurgery.scale import find_shards
from tests.scale.written import rows, write_npy


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    # ranks and actors have one thread each, and float32 sums depend on their number
    torch.set_num_threads(1)


@pytest.fixture
def data():
    """Return rows in twenty shards, so that sums are taken in two rounds; the rarest class never fills d."""
    return rows(n=600, labels=("a", "b", "a", "b", "a"), cuts=range(30, 600, 30))


@pytest.fixture
def shards(tmp_path, data):
    write_npy(tmp_path, data)
    return find_shards([f"{tmp_path}/x*.npy"], labels=[f"{tmp_path}/z*.npy"])
