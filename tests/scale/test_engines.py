"""Engines give the same bits, and a worker or a driver that dies costs nothing but time."""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from threading import Timer
from types import SimpleNamespace

import pytest

from repsurgery import ClassMoments
from repsurgery.errors import DataError, EngineError, EngineWarning, ParameterError, ShardError
from repsurgery.scale import DaskEngine, LocalEngine, RayEngine, make_engine, ray_dataset_moments, reduce_shards
from repsurgery.scale.engines import dask_engine
from tests.scale.checks import assert_equal_bits, assert_exact
from tests.scale.shards import Dying, Waiting, Wrapped
from tests.scale.written import write_parquet

ROOT = Path(__file__).parents[2]
ENGINES = ["local", "ray", "dask"]


@pytest.fixture(scope="module")
def ray_here():
    """A Ray of two cores, started by an engine; the engines of the tests find it there."""
    pytest.importorskip("ray", reason="this engine is in the extra repsurgery[distributed]")
    with RayEngine(workers=2):
        yield


@pytest.fixture(scope="module")
def dask_address():
    distributed = pytest.importorskip("dask.distributed", reason="this engine is in the extra repsurgery[distributed]")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(params=ENGINES)
def engine(request):
    if request.param == "local":
        return LocalEngine(workers=2)
    if request.param == "ray":
        request.getfixturevalue("ray_here")
        return RayEngine(workers=2)
    if "killed" in request.node.name:
        return DaskEngine(workers=2)  # how many deaths are forgiven is decided where the scheduler is started
    return DaskEngine(address=request.getfixturevalue("dask_address"))


def one_process(shards, folder):
    return reduce_shards(shards, work_dir=folder, engine=LocalEngine(workers=1)).moments


def test_engines_agree_to_the_bit(engine, data, shards, tmp_path):
    found = reduce_shards(shards[::-1], work_dir=tmp_path / "work", engine=engine)
    assert_exact(found.moments, data.moments)
    assert_equal_bits(found.moments, one_process(shards, tmp_path / "alone"))


def test_a_killed_worker_costs_nothing(engine, data, shards, tmp_path):
    dying = [Dying(shard, tmp_path / "log", os.getpid()) if i % 9 == 4 else shard for i, shard in enumerate(shards)]
    found = reduce_shards(dying, work_dir=tmp_path / "work", engine=engine, batch_rows=8)
    assert [shard.times_read() for shard in dying if isinstance(shard, Dying)] == [2, 2]
    assert_exact(found.moments, data.moments)
    assert_equal_bits(found.moments, one_process(shards, tmp_path / "alone"))


def test_a_shard_that_kills_every_worker_is_named_and_the_rest_kept(data, shards, tmp_path):
    deadly = Dying(shards[1], tmp_path / "log", os.getpid(), deaths=99)
    given = [shards[0], deadly, *shards[2:]]
    with pytest.raises(ShardError, match=r"x01\.npy: its worker died 3 times .*memory.*The 19 others are kept"):
        reduce_shards(given, work_dir=tmp_path / "work", engine=LocalEngine(workers=2), batch_rows=8)
    assert deadly.times_read() == 3
    found = reduce_shards(shards, work_dir=tmp_path / "work", engine=LocalEngine(workers=1))
    assert sum(receipt.kept for receipt in found.receipts) == 19
    assert_exact(found.moments, data.moments)


DRIVER = """
import signal
import sys
from pathlib import Path
from repsurgery.distributed import make_engine, reduce_shards
from repsurgery.sources import find_shards
from tests.scale.shards import Waiting, Wrapped

folder = Path(sys.argv[1])
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs do not hear it
    shards = find_shards([f"{folder}/x*.npy"], labels=[f"{folder}/z*.npy"])
    shards = [
        Waiting(shard, folder / "log", folder / "gate") if i in (6, 13) else Wrapped(shard, folder / "log")
        for i, shard in enumerate(shards)
    ]
    reduce_shards(shards, work_dir=folder / "work", engine=make_engine(sys.argv[2], workers=2))
"""


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # one that has ended and was not waited for is no longer at work
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def until(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def driver_at_the_gate(name, folder, **options):
    """Start a driver, and return it when its two workers wait at the gate of shards 6 and 13."""
    script = folder / "driver.py"
    script.write_text(DRIVER)
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    env = {**os.environ, "PYTHONPATH": path}
    driver = subprocess.Popen([sys.executable, script, folder, name], env=env, **options)
    until(lambda: len(list((folder / "work").glob("part-*"))) >= 12)
    return driver


def killed_driver(name, folder):
    """Kill a driver at the gate, open it, and return the children of the dead."""
    driver = driver_at_the_gate(name, folder)
    workers = children(driver.pid)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert not (folder / "work" / "manifest.json").exists()
    (folder / "gate").touch()
    return workers


def test_a_killed_driver_goes_on_where_it_stopped(data, shards, tmp_path):
    workers, work = killed_driver("local", tmp_path), tmp_path / "work"
    until(lambda: not any(map(alive, workers)))
    again = [Wrapped(shard, tmp_path / "log") for shard in shards]
    found = reduce_shards(again, work_dir=work, engine=LocalEngine(workers=1))
    assert [shard.times_read() for shard in again] == [1] * 20
    assert 14 <= sum(receipt.kept for receipt in found.receipts) < 20
    assert_exact(found.moments, data.moments)
    assert_equal_bits(found.moments, one_process(shards, tmp_path / "alone"))


@pytest.mark.parametrize("name", ["ray", "dask"])
def test_a_new_driver_beside_orphaned_workers_is_exact(name, data, shards, tmp_path):
    """Workers that have lost their driver may go on for a while, on the same parts as the next one."""
    pytest.importorskip(name, reason="this engine is in the extra repsurgery[distributed]")
    killed_driver(name, tmp_path)
    again = [Wrapped(shard, tmp_path / "log") for shard in shards]
    found = reduce_shards(again, work_dir=tmp_path / "work", engine=LocalEngine(workers=1))
    assert sum(receipt.kept for receipt in found.receipts) >= 12
    assert_exact(found.moments, data.moments)
    assert_equal_bits(found.moments, one_process(shards, tmp_path / "alone"))


def test_an_interrupted_driver_takes_its_workers_along(shards, tmp_path):
    engine = LocalEngine(workers=2)
    waiting = [Waiting(shard, tmp_path / "log", tmp_path / "gate") for shard in shards]
    begun = [0]

    def announce(receipt, total):
        begun[0] += 1
        raise KeyboardInterrupt

    given = [*shards[:1], *waiting[1:]]
    with pytest.raises(KeyboardInterrupt):
        reduce_shards(given, work_dir=tmp_path / "work", engine=engine, announce=announce)
    assert begun == [1]
    assert not children(os.getpid()) or not any("spawn_main" in _command(pid) for pid in children(os.getpid()))


@pytest.mark.parametrize("name", ["local", "dask"])
def test_ctrl_c_is_heard_by_the_driver_alone(name, shards, tmp_path):
    driver = driver_at_the_gate(name, tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    os.killpg(driver.pid, signal.SIGINT)
    (tmp_path / "gate").touch()
    said = driver.communicate(timeout=120)[1]
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert said.count("Traceback") == 1, said


def test_ctrl_c_while_a_cluster_starts_is_kept_for_later():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    steps = []
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: SIM117 - the order is the point
            with dask_engine._interrupts_held():
                signal.pthread_kill(threading.get_ident(), signal.SIGINT)
                steps.append("started")
        assert steps == ["started"]
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_line_that_breaks_while_a_result_is_fetched_is_a_lost_cluster():
    class Broken:
        status = "finished"

        def result(self):
            raise OSError("Stream is closed")

    engine = DaskEngine()
    engine._client = SimpleNamespace(status="running")
    with pytest.raises(EngineError, match="cluster is gone"):
        engine._result(Broken())


def _command(pid):
    return Path(f"/proc/{pid}/cmdline").read_text()


@pytest.mark.parametrize("name", ["ray", "dask"])
@pytest.mark.parametrize("listening", [False, True])
def test_a_dead_address_is_told_within_seconds(name, listening, monkeypatch):
    pytest.importorskip(name, reason="this engine is in the extra repsurgery[distributed]")
    monkeypatch.setattr("repsurgery.scale.engines.addresses.SECONDS", 0.5)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        if listening:
            line.listen()
        address = f"127.0.0.1:{line.getsockname()[1]}"
        with pytest.raises(EngineError, match=rf"no {name.capitalize()} cluster at {address}.*correct the address"):
            make_engine(name, address=address).__enter__()


SCHEDULER = """
import asyncio
from dask.distributed import Scheduler

async def main():
    async with Scheduler(port=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as scheduler:
        print(scheduler.address, flush=True)
        await scheduler.finished()

asyncio.run(main())
"""


@pytest.fixture
def scheduler():
    """A scheduler that nobody works for."""
    pytest.importorskip("dask.distributed", reason="this engine is in the extra repsurgery[distributed]")
    process = subprocess.Popen(
        [sys.executable, "-c", SCHEDULER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    yield process, process.stdout.readline().strip()
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_cluster_without_workers_and_one_that_is_lost_are_told(scheduler, shards, tmp_path):
    process, address = scheduler
    with (
        pytest.warns(EngineWarning, match=f"scheduler at {address} has no workers yet"),
        DaskEngine(address=address) as running,
    ):
        Timer(1.0, process.kill).start()
        with pytest.raises(EngineError, match=r"cluster is gone.*run again"):
            list(running.map(abs, [1, 2]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")  # Ray Data deprecates its own defaults
def test_ray_data_sends_moments_and_no_rows(ray_here, data, tmp_path):
    from ray import data as ray_data

    ray_data.DataContext.get_current().enable_progress_bars = False
    for i, (X, z) in enumerate(data.pieces[:6]):
        write_parquet(tmp_path / f"s{i}.parquet", X, z)
    dataset = ray_data.read_parquet(str(tmp_path))
    found = ray_dataset_moments(dataset, label_column="label", columns=["vector"])
    assert_exact(found, ClassMoments.of(data.X[:180], data.z[:180]))
    with pytest.raises(DataError, match="no column nothing"):
        ray_dataset_moments(dataset, label_column="label", columns=["nothing"])


def test_a_second_ray_is_refused(ray_here):
    with pytest.raises(EngineError, match="connected to a Ray already"):
        RayEngine(address="127.0.0.1:1").__enter__()


@pytest.mark.parametrize("name", ["ray", "dask"])
def test_what_is_no_address_is_told(name, monkeypatch):
    pytest.importorskip(name, reason="this engine is in the extra repsurgery[distributed]")
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(EngineError, match="written host:port"):
        make_engine(name, address="nowhere").__enter__()


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("magic", {}, "choose local, ray or dask"),
        ("local", {"address": "a:1"}, "has no address"),
        *((name, {"workers": 0}, "at least one") for name in ENGINES),
    ],
)
def test_engines_by_wrong_words(name, options, words):
    with pytest.raises(ParameterError, match=words):
        make_engine(name, **options)
