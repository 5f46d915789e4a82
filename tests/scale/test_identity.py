"""What decides a shard's rows decides its identity; a folder that is streamed is one, however it is called."""

import os
import shutil

import numpy as np
import pytest

from repsurgery.errors import DataError, DuplicateWarning
from repsurgery.scale import find_shards
from repsurgery.scale.shards.shard import identity_of
from tests.scale import written
from tests.scale.written import rows


def identities(shards):
    return [identity_of(shard, skip_non_finite=False) for shard in shards]


def changed(before, after):
    return [a != b for a, b in zip(before, after, strict=True)]


def rewrite(path, *, older=False):
    """Write another byte of the same length, and a time of change that no clock can miss."""
    held, stat = path.read_bytes(), path.stat()
    path.write_bytes(held[:-1] + bytes([held[-1] ^ 1]))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + (-1 if older else 1) * 10**9))


@pytest.mark.parametrize("victim", ["x01.npy", "z01.npy"])
def test_a_rewritten_file_changes_its_shard_and_no_other(tmp_path, victim):
    written.write_npy(tmp_path, rows())
    shards = find_shards([f"{tmp_path}/x*"], labels=[f"{tmp_path}/z*"])
    before = identities(shards)
    assert identities(shards) == before
    rewrite(tmp_path / victim)
    assert changed(before, identities(shards)) == [False, True, False]


@pytest.mark.parametrize("array", ["vector", "label"])
@pytest.mark.parametrize("way", ["newer", "older", "lost", "renamed"])
def test_a_rewritten_chunk_changes_its_shard_and_no_other(tmp_path, array, way):
    for i, (X, z) in enumerate(rows().pieces):
        written.write_zarr(tmp_path / f"s{i}.zarr", X, z)
    shards = find_shards([f"{tmp_path}/s*"], columns=["vector"], label_column="label")
    before = identities(shards)
    assert identities(shards) == before
    chunk = sorted(path for path in (tmp_path / "s1.zarr" / array / "c").rglob("*") if path.is_file())[0]
    if way == "lost":
        chunk.unlink()
    elif way == "renamed":
        chunk.rename(chunk.with_name("9"))
    else:
        rewrite(chunk, older=way == "older")
    assert changed(before, identities(shards)) == [False, True, False]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    pytest.importorskip("datasets", reason="data sets need the extra repsurgery[data]")
    folder = tmp_path / "hub"
    folder.mkdir()
    for i, (X, z) in enumerate(rows().pieces):
        written.write_parquet(folder / f"train-{i:05}-of-00003.parquet", X, z)
    monkeypatch.chdir(tmp_path)
    return folder


def streamed(*sources):
    return find_shards(sources, columns=["vector"], label_column="label")


@pytest.mark.parametrize("older", [False, True])
def test_a_rewritten_file_of_a_streamed_folder_changes_its_shards(hub, older):
    before = identities(streamed("hf:hub"))
    assert identities(streamed("hf:hub")) == before
    rewrite(hub / "train-00001-of-00003.parquet", older=older)
    assert all(changed(before, identities(streamed("hf:hub"))))


def test_a_streamed_folder_is_found_from_everywhere(hub, monkeypatch):
    shards = streamed("hf:hub")
    before = identities(shards)
    assert shards[0].name.startswith(f"hf:{hub}:")
    monkeypatch.chdir("/")
    assert sum(len(X) for shard in shards for X, _ in shard.batches(50)) == 200
    assert identities(streamed(f"hf:{hub}")) == before


@pytest.mark.parametrize("again", ["hf:hub", "hf:./hub", "hf:hub/", "hf:link"])
def test_a_streamed_folder_listed_twice_is_counted_once(hub, again):
    (hub.parent / "link").symlink_to(hub)
    with pytest.warns(DuplicateWarning, match="counted once"):
        shards = streamed("hf:hub", again)
    assert len(shards) == 3


@pytest.mark.parametrize("other", ["hub/*.parquet", "hub/train-00001-of-00003.parquet", "link.parquet", "hf:hub/sub"])
def test_a_folder_and_its_files_are_refused(hub, other):
    (hub / "sub").mkdir()
    os.link(hub / "train-00001-of-00003.parquet", hub.parent / "link.parquet")
    with pytest.raises(DataError, match=r"is in hf:.*hub and would be counted twice"):
        streamed("hf:hub", other)
    (hub / "sub").rmdir()
    shutil.copy(hub / "train-00001-of-00003.parquet", hub.parent / "other.parquet")
    assert len(streamed("hf:hub", "other.parquet")) == 4


def test_labels_of_another_file_are_another_shard(tmp_path):
    data = rows(n=20)
    np.save(tmp_path / "x.npy", data.X)
    for name in ("y", "z"):
        np.save(tmp_path / f"{name}.npy", data.z)
    first, second = (find_shards([f"{tmp_path}/x.npy"], labels=[f"{tmp_path}/{name}.npy"]) for name in "yz")
    assert identities(first) != identities(second)
