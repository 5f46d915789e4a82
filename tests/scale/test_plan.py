"""The arithmetic of a plan, by hand; the page shows it against the clock."""

import time
from dataclasses import replace

import pytest

from repsurgery.errors import ParameterError
from repsurgery.scale import DEFAULT_RATES, Rates, measure_rates, plan

GB = 10**9
RATES = Rates(multiply=10e9, handle=1e8, read=1e9, write=2e8, load=4e8, network=1e9)


def test_a_plan_by_hand():
    """100M × 4096 in float16, two classes, eight workers, 256 shards: 32 each."""
    found = plan(100_000_000, 4096, 2, 8, shards=256, storage="float16", rates=RATES)
    assert found.data_bytes == 819_200_000_000
    assert found.flops == 100_000_000 * 16_777_216
    assert found.part_bytes == 2 * 8 * 16_777_216 == 268_435_456
    assert found.work_bytes == 256 * 268_435_456
    assert found.read_seconds == pytest.approx(102.4)
    assert found.handle_seconds == pytest.approx(12_500_000 * 4096 / 1e8)
    assert found.multiply_seconds == pytest.approx(20_971.52)
    assert found.write_seconds == pytest.approx(32 * 268_435_456 / 2e8)
    # 256 parts -> 32 sums (4 turns of 8 workers) -> 4 sums (1 turn), for the driver: 32 + 8 + 4 loaded, 5 written
    assert found.merge_seconds == pytest.approx(268_435_456 * (44 / 4e8 + 5 / 2e8))
    assert found.network_bytes == (32 + 44 + 5) * 268_435_456
    assert found.all_reduce_bytes == 2 * 7 * 268_435_456 // 8
    # two parts of two classes, their sum, and two squares more: eight of 8 · 4096² bytes
    assert found.memory_bytes == 8 * 134_217_728
    parts = (102.4, 512.0, 20_971.52, 42.94967296, 36.2387866, 21.743271936)
    assert found.seconds == pytest.approx(sum(parts))


def test_one_worker_has_no_network_and_waits_for_nobody():
    found = plan(1000, 10, 3, 1, shards=8, storage="float64", rates=RATES)
    assert (found.network_bytes, found.all_reduce_bytes, found.network_seconds) == (0, 0, 0)
    assert found.merge_seconds == pytest.approx(8 * 2400 / 4e8)
    assert found.read_seconds == pytest.approx(1000 * 80 / 1e9)


def test_memory_of_narrow_rows_is_that_of_the_stream():
    # two batches of 209,715 rows, a block of 78,643 to centre in, as many waiting, a sum, and one to mirror into
    found = plan(1000, 10, 1, storage="float64", shards=1)
    assert found.memory_bytes == 2 * 209_715 * 80 + 2 * 78_643 * 80 + 800 + 800


@pytest.mark.parametrize(("workers", "turns"), [(5, 2), (8, 1), (9, 1), (3, 3)])
def test_the_busiest_worker_decides(workers, turns):
    found = plan(8000, 100, 2, workers, shards=8, rates=RATES)
    assert found.multiply_seconds == pytest.approx(turns * 1000 * 100**2 / RATES.multiply)


def test_what_grows_and_what_does_not():
    small, more = plan(10**6, 512, shards=64), plan(10**8, 512, shards=64)
    assert more.multiply_seconds == pytest.approx(100 * small.multiply_seconds)
    assert (more.memory_bytes, more.work_bytes) == (small.memory_bytes, small.work_bytes)
    assert plan(10**6, 2048, shards=64).memory_bytes > small.memory_bytes


def test_rates_of_this_machine_are_measured(tmp_path):
    found = measure_rates(64, folder=tmp_path, repeats=1, clock=time.process_time)
    assert replace(found, network=1.0) != replace(DEFAULT_RATES, network=1.0)
    assert found.network == DEFAULT_RATES.network
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ParameterError, match="no folder"):
        measure_rates(64, folder=tmp_path / "nothing")


@pytest.mark.parametrize("storage", ["float16", "float32", "float64"])
def test_every_storage_can_be_measured(tmp_path, monkeypatch, storage):
    monkeypatch.setattr("repsurgery.scale.rates.FILE_BYTES", 8 * 2**20)
    assert measure_rates(16, folder=tmp_path, storage=storage, repeats=1).handle > 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rows": 0}, "rows is 0"),
        ({"width": 2.5}, "width is 2.5"),
        ({"workers": -1}, "workers is -1"),
        ({"shards": 1001}, "choose fewer shards"),
        ({"storage": "int8"}, "float16"),
    ],
)
def test_impossible_plans_are_refused(given, words):
    with pytest.raises(ParameterError, match=words):
        plan(**{"rows": 1000, "width": 8, "shards": 8, **given})
    with pytest.raises(ParameterError, match="above zero"):
        replace(RATES, read=0.0)
