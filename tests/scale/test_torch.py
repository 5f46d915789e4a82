"""The sum over the ranks of a torchrun job is that of one process."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from repsurgery import ClassMoments
from repsurgery.errors import EngineError, ShapeError
from repsurgery.moments.stream import stream_moments
from repsurgery.scale import all_reduce_moments
from tests.scale.checks import assert_equal_bits, assert_exact
from tests.scale.written import Rows, in_groups, rows, write_npy

ROOT = Path(__file__).parents[2]
torch = pytest.importorskip("torch", reason="ranks need the extra repsurgery[lm]")


def test_torchrun_gives_the_moments_of_one_process(tmp_path):
    data = rows(n=300, cuts=range(30, 300, 30))
    z = data.z.astype("U9")
    z[:20] = "only on rank 0"[:9]
    z[[35, 65, 95]] = "few"
    data = Rows(data.X, z, data.cuts)
    write_npy(tmp_path, data)
    job = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*job, ROOT / "tests" / "scale" / "torchrun_job.py", tmp_path],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ranks = [ClassMoments.load(tmp_path / f"rank{rank}.safetensors") for rank in range(2)]
    assert_exact(ranks[0], data.moments)
    assert ranks[0]["few"].factor is not None
    assert_equal_bits(*ranks)
    alone = ClassMoments.load(tmp_path / "alone1.safetensors")
    assert_exact(alone, stream_moments(pair for i, pair in enumerate(data.pieces) if i % 2 == 0))
    found = [ClassMoments.load(tmp_path / f"groups{rank}.safetensors") for rank in range(2)]
    assert_equal_bits(*found)
    wanted = in_groups(0) + in_groups(1)
    assert found[0]["alone"].groups is None
    for label in ("many", "few"):
        there, here = found[0][label].groups, wanted[label].groups
        assert (there.count, there.squares) == (here.count, here.squares)
        assert there.between == pytest.approx(here.between, rel=1e-9)
        assert found[0][label].effective_count == pytest.approx(wanted[label].effective_count, rel=1e-9)


@pytest.fixture
def one_rank(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_one_rank_changes_nothing(one_rank):
    data = rows(n=90)
    offset = ClassMoments.of(data.X.astype("f8") + 1e6, data.z)
    assert_exact(all_reduce_moments(offset), offset)
    with pytest.raises(ShapeError, match="no rows at all"):
        all_reduce_moments(ClassMoments({}))


def test_an_offset_costs_no_digits_between_ranks(one_rank, monkeypatch):
    """Two ranks in one process: what the other one would send is put in by hand."""
    data = rows(n=400, dtype="float64", cuts=(150,), labels=("a",))
    X = data.X + 1e6
    here, there = ClassMoments.of(X[:150], data.z[:150]), ClassMoments.of(X[150:], data.z[150:])
    from repsurgery.scale.engines import torch_engine

    monkeypatch.setattr(torch_engine, "_gathered", lambda dist, value, group: [value, torch_engine._summary(there)])
    real = torch_engine._about
    monkeypatch.setattr(torch_engine, "_about", lambda m, whole: real(m, whole) + real(there["a"], whole))
    whole = all_reduce_moments(here)["a"]
    exact = X.astype(np.longdouble)
    exact -= exact.mean(axis=0)
    truth = (exact.T @ exact / len(X)).astype(np.float64)
    assert np.abs(whole.covariance - truth).max() < 1e-14 * np.abs(truth).max()


def test_without_torchrun_it_says_how_to_start():
    with pytest.raises(EngineError, match="torchrun"):
        all_reduce_moments(ClassMoments.of(np.ones((3, 2)), [0, 1, 0]))
