"""Streams have no identity but the one they are given: nothing is taken for another, and nothing ends unnoticed."""

from dataclasses import dataclass

import numpy as np
import pytest

from repsurgery.errors import DataError, IdentityWarning, ShardError
from repsurgery.moments import ClassMoments
from repsurgery.scale import LocalEngine, Shard, count_shard, dataset_shards, find_shards, reduce_shards
from tests.scale.shards import Wrapped

N, D = 12, 3


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return pytest.importorskip("datasets", reason="data sets need the extra repsurgery[data]")


def rows(seed):
    X = np.random.default_rng(seed).normal(size=(N, D)).astype(np.float32)
    return X, ["a", "b"] * (N // 2)


def records(seed):
    X, z = rows(seed)
    return [{"vector": x.tolist(), "label": label} for x, label in zip(X, z, strict=True)]


def streamed(datasets, seed, **options):
    stream = datasets.IterableDataset.from_generator(lambda: iter(records(seed)))
    return dataset_shards(stream, label_column="label", **options)


def reduced(shards, work):
    return reduce_shards(shards, work_dir=work, engine=LocalEngine(workers=1)).moments


def assert_is(moments, seed):
    for label, wanted in ClassMoments.of(*rows(seed)).items():
        np.testing.assert_allclose(moments[label].mean, wanted.mean, rtol=1e-6)


def test_streams_without_a_key_are_never_taken_for_one_another(datasets, tmp_path):
    for seed in range(60):
        with pytest.warns(IdentityWarning, match="Give the stream a key"):
            # freed after each turn, so that the next stream may come to lie in the same place
            assert_is(reduced(streamed(datasets, seed), tmp_path / "work"), seed)
    assert list((tmp_path / "work").glob("part-*")) == []


def test_a_stream_without_a_key_leaves_nothing_behind_when_another_shard_fails(datasets, tmp_path):
    bad = [{**record, "vector": [float("nan")] * D} for record in records(0)]
    stream = datasets.IterableDataset.from_generator(lambda: iter(bad))
    shards = [*dataset_shards(stream, label_column="label", title="bad", key="bad"), *streamed(datasets, 0)]
    with pytest.warns(IdentityWarning, match="1 of 2 shards"), pytest.raises(ShardError, match="NaN"):
        reduced(shards, tmp_path / "work")
    assert list((tmp_path / "work").glob("part-*")) == []


def test_a_key_or_a_fingerprint_of_its_own_is_kept(datasets, tmp_path):
    X, z = rows(0)
    whole = datasets.Dataset.from_dict({"vector": X, "label": z})
    for name, shards in (
        ("keyed", lambda: streamed(datasets, 0, key="mine")),
        ("whole", lambda: dataset_shards(whole, label_column="label")),
    ):
        read = tmp_path / f"{name}.log"
        for _ in range(2):
            assert_is(reduced([Wrapped(shard, read) for shard in shards()], tmp_path / name), 0)
        assert len(read.read_text().splitlines()) == 1


@pytest.mark.parametrize("options", [{}, {"key": "mine"}])
@pytest.mark.parametrize("left", [0, 5, N])
def test_a_stream_that_goes_on_where_it_stopped_is_refused(datasets, options, left):
    once = iter(records(0)[:left])
    stream = datasets.IterableDataset.from_generator(lambda: once)
    with pytest.raises(DataError, match=r"save_to_disk|is empty"):
        count_shard(*dataset_shards(stream, label_column="label", **options))


@dataclass(frozen=True)
class Cut(Wrapped):
    """Ends after some rows, whatever its schema says."""

    stop: int = 0

    def batches(self, rows):
        for X, z in self.inner.batches(1):
            if self.stop == 0:
                return
            object.__setattr__(self, "stop", self.stop - 1)
            yield X, z


def saved(tmp_path):
    X, z = rows(0)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "z.npy", np.array(z))
    (shard,) = find_shards([f"{tmp_path}/x.npy"], labels=[f"{tmp_path}/z.npy"])
    return shard


@pytest.mark.parametrize("stop", [0, 1, N - 1])
def test_a_stream_that_ends_before_its_declared_rows_is_refused(tmp_path, stop):
    shard: Shard = Cut(saved(tmp_path), tmp_path / "log", stop)
    with pytest.raises(DataError, match=f"declares {N} rows and {stop} came"):
        count_shard(shard)
    assert count_shard(Cut(saved(tmp_path), tmp_path / "log", N)).rows == N


def test_a_part_is_not_written_for_a_stream_that_ended_early(tmp_path):
    with pytest.raises(ShardError, match="ended early"):
        reduced([Cut(saved(tmp_path), tmp_path / "log", 3)], tmp_path / "work")
    assert list((tmp_path / "work").glob("part-*")) == []
