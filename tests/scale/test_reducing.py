"""Every shard once: whatever is listed, retried, restarted, damaged or full."""

import errno
import json
import os
import random
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from repsurgery import ClassMoments, files
from repsurgery.errors import (
    CacheWarning,
    DataError,
    DuplicateWarning,
    FileFormatError,
    NonFiniteWarning,
    ParameterError,
    ShapeError,
    ShardError,
)
from repsurgery.scale import LocalEngine, count_shard, find_shards, reduce_shards
from repsurgery.scale.reduce import shards as reducing_module
from repsurgery.scale.reduce import work as work_module
from tests.scale.checks import assert_equal_bits, assert_exact
from tests.scale.shards import Wrapped

ONE = partial(LocalEngine, workers=1)


@pytest.fixture
def reduced(tmp_path):
    """Return a function that reduces shards in this process, in one work folder."""
    return lambda shards, **options: reduce_shards(shards, work_dir=tmp_path / "work", engine=ONE(), **options)


@pytest.fixture
def logged(tmp_path, shards):
    return [Wrapped(shard, tmp_path / "log") for shard in shards]


def parts(folder):
    return sorted((folder / "work").glob("part-*"))


def test_the_moments_are_those_of_one_pass(data, shards, reduced):
    found = reduced(shards)
    assert_exact(found.moments, data.moments)
    assert found.rows == 600
    assert [receipt.rows for receipt in found.receipts] == [30] * 20


def test_the_order_of_the_shards_changes_no_bit(tmp_path, shards, reduced):
    shuffled = random.Random(0).sample(shards, len(shards))
    other = reduce_shards(shuffled, work_dir=tmp_path / "other", engine=ONE())
    assert_equal_bits(reduced(shards).moments, other.moments)


def test_a_finished_shard_is_not_read_again(tmp_path, data, logged, reduced):
    first = reduced(logged[:12])
    assert not any(receipt.kept for receipt in first.receipts)
    second = reduced(logged)
    assert sum(receipt.kept for receipt in second.receipts) == 12
    assert [shard.times_read() for shard in logged] == [1] * 20
    assert_exact(second.moments, data.moments)
    manifest = json.loads((tmp_path / "work" / "manifest.json").read_text())
    assert {entry["part"] for entry in manifest["shards"]} == {path.name for path in parts(tmp_path)}
    assert not list((tmp_path / "work").glob("sums-*"))


@pytest.mark.parametrize("damage", ["cut", "flipped", "another part", "no receipt"])
def test_a_damaged_part_is_counted_anew(tmp_path, data, logged, reduced, damage):
    reduced(logged)
    victim, other = parts(tmp_path)[3:5]
    if damage == "cut":
        victim.write_bytes(victim.read_bytes()[:-9])
    elif damage == "flipped":
        held = bytearray(victim.read_bytes())
        held[-9] ^= 1
        victim.write_bytes(held)
    elif damage == "another part":
        shutil.copy(other, victim)
    else:
        ClassMoments.load(other).save(victim)
    with pytest.warns(CacheWarning, match="counted anew"):
        found = reduced(logged)
    assert sum(shard.times_read() for shard in logged) == 21
    assert_exact(found.moments, data.moments)


def test_a_shard_that_changed_is_counted_anew(tmp_path, data, logged, reduced):
    before = reduced(logged).moments
    X = np.load(tmp_path / "x07.npy")
    np.save(tmp_path / "x07.npy", X + 1)
    after = reduced(logged)
    assert [shard.times_read() for shard in logged].count(2) == 1
    expected = data.X.copy()
    expected[210:240] += 1
    assert_exact(after.moments, ClassMoments.of(expected, data.z))
    assert np.abs(after.moments["a"].mean - before["a"].mean).max() > 1e-3


def in_place(path, fresh):
    held = path.stat()
    path.write_bytes(fresh)
    os.utime(path, ns=(held.st_atime_ns, held.st_mtime_ns))


def replaced(path, fresh):
    """As cp -p, rsync -t and tar write: another file under the name, with the size and the time of the old one."""
    copy = path.with_name("copy")
    copy.write_bytes(fresh)
    shutil.copystat(path, copy)
    copy.replace(path)


@pytest.mark.parametrize("rewrite", [in_place, replaced])
@pytest.mark.parametrize("victim", ["x07.npy", "z07.npy"])
def test_a_shard_rewritten_under_its_old_time_is_counted_anew(tmp_path, data, logged, reduced, rewrite, victim):
    reduced(logged)
    path = tmp_path / victim
    held = path.read_bytes(), path.stat()
    values = np.load(path)
    np.save(tmp_path / "fresh.npy", -values if victim == "x" else values[::-1])
    rewrite(path, (tmp_path / "fresh.npy").read_bytes())
    (tmp_path / "fresh.npy").unlink()
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (held[1].st_size, held[1].st_mtime_ns)
    assert path.read_bytes() != held[0]
    after = reduced(logged)
    assert [receipt.kept for receipt in after.receipts].count(False) == 1
    X, z = (np.concatenate([np.load(tmp_path / f"{one}{i:02}.npy") for i in range(20)]) for one in "xz")
    assert_exact(after.moments, ClassMoments.of(X, z))


@pytest.mark.parametrize("rewrite", [in_place, replaced])
@pytest.mark.parametrize(
    ("victim", "dtype", "header"),
    [
        ("x", ">i4", (b"'>i4'", b"'<i4'")),
        ("x", "<f4", (b"'<f4'", b"'<i4'")),
        ("x", "<i4", (b"(12, 6)", b"(12, 6)")),
        ("z", ">i4", (b"'>i4'", b"'<i4'")),
    ],
    ids=["byte order", "type", "nothing", "labels"],
)
def test_a_shard_of_which_the_header_alone_changed_is_counted_anew(tmp_path, reduced, rewrite, victim, dtype, header):
    """The bytes of the rows stay as they are, and are other numbers."""
    rng = np.random.default_rng(0)
    for i in range(3):
        np.save(tmp_path / f"x{i}.npy", rng.integers(-99, 99, (12, 6)).astype(dtype if victim == "x" else "<f4"))
        np.save(tmp_path / f"z{i}.npy", np.repeat([1, 2], 6).astype(dtype if victim == "z" else "<i4"))
    found = [f"{tmp_path}/{one}*.npy" for one in "xz"]
    reduced(find_shards(found[:1], labels=found[1:]))
    for path in sorted(tmp_path.glob(f"{victim}*.npy")):
        held = path.read_bytes()
        assert held.count(header[0]) == 1
        rewrite(path, held.replace(*header))
        assert path.stat().st_size == len(held)
    after = reduced(find_shards(found[:1], labels=found[1:]))
    # counter-check: the same header under a new inode or time of change is no change
    assert [receipt.kept for receipt in after.receipts] == [header[0] == header[1]] * 3
    X, z = (np.concatenate([np.load(tmp_path / f"{one}{i}.npy") for i in range(3)]) for one in "xz")
    assert_exact(after.moments, ClassMoments.of(X, z))


@pytest.mark.parametrize("rewrite", [in_place, replaced])
def test_the_same_content_is_compared_once_and_not_counted(tmp_path, logged, reduced, rewrite):
    """Counter-check: a copy of the same rows keeps its part; its rows are read once, and not again afterwards."""
    before = reduced(logged)
    rewrite(tmp_path / "x07.npy", (tmp_path / "x07.npy").read_bytes())
    (tmp_path / "x08.npy").chmod(0o600)
    for _ in range(2):
        after = reduced(logged)
        assert all(receipt.kept for receipt in after.receipts)
        assert_equal_bits(before.moments, after.moments)
    assert sorted(shard.times_read() for shard in logged) == [1] * 18 + [2] * 2


def test_the_digest_of_rows_does_not_depend_on_batches(shards):
    digests = {count_shard(shard, batch_rows=rows).content for shard in shards[:1] for rows in (1, 7, 30, None)}
    assert len(digests) == 1 and digests != {count_shard(shards[1]).content}


def test_a_part_without_a_digest_is_counted_anew(tmp_path, logged, reduced, monkeypatch):
    """As version 0.1 wrote them."""
    monkeypatch.setattr(
        work_module, "count_shard", lambda *shard, **how: replace(count_shard(*shard, **how), content="")
    )
    reduced(logged)
    monkeypatch.undo()
    assert not any(receipt.kept for receipt in reduced(logged).receipts)
    assert all(receipt.kept for receipt in reduced(logged).receipts)


@pytest.mark.parametrize("damage", [b"noise", "cut", "nan"])
def test_a_bad_shard_is_named_and_the_rest_kept(tmp_path, data, logged, reduced, damage):
    path = tmp_path / "x05.npy"
    whole = path.read_bytes()
    if damage == "nan":
        X = np.load(path)
        X[[2, 9], 1] = np.nan
        np.save(path, X)
    else:
        path.write_bytes(damage if isinstance(damage, bytes) else whole[:-50])
    with pytest.raises(ShardError, match=r"^1 of 20 shards .*x05\.npy.*The 19 others are kept") as caught:
        reduced(logged)
    assert str(caught.value).count("x05.npy") == 1
    assert damage != "nan" or "2 rows with NaN or infinity (2, 9)" in str(caught.value)
    assert len(parts(tmp_path)) == 19
    assert "x05.npy" in json.loads((tmp_path / "work" / "manifest.json").read_text())["failures"][0]
    path.write_bytes(whole)
    found = reduced(logged)
    assert sum(receipt.kept for receipt in found.receipts) == 19
    assert_exact(found.moments, data.moments)


def test_rows_left_out_are_told_also_when_nothing_is_read_again(tmp_path, data, logged, reduced):
    X = np.load(tmp_path / "x05.npy")
    X[[2, 9], 1] = np.inf
    np.save(tmp_path / "x05.npy", X)
    for _ in range(2):
        with pytest.warns(NonFiniteWarning, match=r"x05\.npy: 2 rows with NaN or infinity \(2, 9\) left out"):
            found = reduced(logged, skip_non_finite=True)
        assert (found.rows, found.non_finite) == (600, 2)
        keep = np.delete(np.arange(600), [152, 159])
        assert_exact(found.moments, ClassMoments.of(data.X[keep], data.z[keep]))
    with pytest.raises(ShardError, match="--skip-non-finite"):
        reduced(logged)


def test_shards_of_which_nothing_is_left(tmp_path, data, shards, reduced):
    for name in ("x05.npy", "x06.npy"):
        np.save(tmp_path / name, np.full((30, 6), np.nan, "f4"))
    with pytest.warns(NonFiniteWarning, match="30 rows") as told:
        found = reduced(shards, skip_non_finite=True)
    assert not any(issubclass(warning.category, DuplicateWarning) for warning in told)
    keep = np.delete(np.arange(600), np.arange(150, 210))
    assert_exact(found.moments, ClassMoments.of(data.X[keep], data.z[keep]))
    with pytest.raises(DataError, match="All 60 rows hold NaN"):
        reduced(shards[5:7], skip_non_finite=True)


def test_copies_of_a_shard_are_told(tmp_path, shards, reduced):
    shutil.copy(tmp_path / "x01.npy", tmp_path / "x02.npy")
    shutil.copy(tmp_path / "z01.npy", tmp_path / "z02.npy")
    with pytest.warns(DuplicateWarning, match=r"x01\.npy and .*x02\.npy hold the same rows"):
        reduced(shards)


def test_shards_that_do_not_fit_are_refused_before_any_work(tmp_path, logged, reduced):
    np.save(tmp_path / "x19.npy", np.ones((30, 9), "f4"))
    with pytest.raises(ShapeError, match="differ in width"):
        reduced(logged)
    assert not (tmp_path / "work").exists()
    assert sum(shard.times_read() for shard in logged) == 0


def test_a_shard_that_changes_while_it_is_read_is_not_kept(tmp_path, shards, reduced):
    class Growing(Wrapped):
        def batches(self, rows):
            yield from super().batches(rows)
            os.utime(self.inner.vectors.path, ns=(1, time.time_ns()))

    with pytest.raises(ShardError, match="changed while it was read"):
        reduced([Growing(shards[0], tmp_path / "log"), *shards[1:3]])
    assert len(parts(tmp_path)) == 2


def test_an_error_nobody_thought_of_names_its_shard(tmp_path, shards, reduced):
    class Broken(Wrapped):
        def batches(self, rows):
            raise RuntimeError("strange")
            yield

    with pytest.raises(ShardError, match=r"x00\.npy: strange"):
        reduced([Broken(shards[0], tmp_path / "log"), *shards[1:]])
    assert len(parts(tmp_path)) == 19


def fail_on_write(monkeypatch, times):
    """Let the disk be full after so many files."""
    left = iter(range(times))
    real = os.fsync

    def fsync(handle):
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(files.os, "fsync", fsync)


def test_a_full_disk_stops_the_work_and_leaves_no_half_file(tmp_path, data, logged, reduced, monkeypatch):
    with monkeypatch.context() as patched:
        fail_on_write(patched, 4)
        with pytest.raises(ShardError, match=r"x04\.npy.*No space left on device.*The 4 others are kept"):
            reduced(logged)
    assert sum(shard.times_read() for shard in logged) == 5
    assert all(path.name.startswith("part-") for path in (tmp_path / "work").iterdir())
    found = reduced(logged)
    assert sum(receipt.kept for receipt in found.receipts) == 4
    assert_exact(found.moments, data.moments)
    with monkeypatch.context() as patched:
        fail_on_write(patched, 0)
        with pytest.raises(OSError, match=r"m\.safetensors could not be written .*every shard is kept$"):
            found.save(tmp_path / "m.safetensors")
    assert not list(tmp_path.glob("*m.safetensors*"))
    found.save(tmp_path / "m.safetensors")
    assert_equal_bits(ClassMoments.load(tmp_path / "m.safetensors"), found.moments)


def test_a_disk_that_is_really_full(tmp_path, data, shards):
    small = tmp_path / "small"
    small.mkdir()
    options = ["-t", "tmpfs", "-o", "size=24k", "tmpfs", str(small)]
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(ShardError, match="No space left on device"):
            reduce_shards(shards, work_dir=small / "work", engine=ONE())
        assert not list(small.rglob(".part-*"))
        for path in small.rglob("part-*"):
            ClassMoments.load(path)
        subprocess.run(["mount", "-o", "remount,size=4m", str(small)], check=True)
        found = reduce_shards(shards, work_dir=small / "work", engine=ONE())
        assert 0 < sum(receipt.kept for receipt in found.receipts) < 20
        assert_exact(found.moments, data.moments)
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_what_killed_processes_left_is_swept_when_it_is_old(tmp_path, shards, reduced):
    work = tmp_path / "work"
    (work / "sums-old").mkdir(parents=True)
    (work / ".part-old").write_text("half")
    (work / ".part-new").write_text("half")
    for name in ("sums-old", ".part-old"):
        os.utime(work / name, (0, 0))
    reduced(shards)
    assert not (work / "sums-old").exists()
    assert not (work / ".part-old").exists()
    assert (work / ".part-new").exists()


def test_parts_that_do_not_add_up_are_refused(shards, reduced, monkeypatch):
    whole = reducing_module.merge_parts
    monkeypatch.setattr(reducing_module, "merge_parts", lambda paths: whole(paths[:-1]))
    with pytest.raises(FileFormatError, match="do not add up"):
        reduced(shards)


def test_rows_that_were_read_and_not_counted_are_missed(shards, reduced, monkeypatch):
    def forgetful(shard, **options):
        counted = count_shard(shard, **options)
        return replace(counted, rows=counted.rows + 1)

    monkeypatch.setattr(work_module, "count_shard", forgetful)
    with pytest.raises(FileFormatError, match="do not add up"):
        reduced(shards)


def test_the_manifest_is_no_shard(tmp_path, data, shards, reduced):
    (tmp_path / "work" / "manifest.json").mkdir(parents=True)
    with pytest.warns(CacheWarning, match=r"manifest\.json could not be written"):
        assert_exact(reduced(shards).moments, data.moments)


def test_many_drivers_write_one_manifest(tmp_path, shards, reduced):
    receipts = list(reduced(shards).receipts)
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(reducing_module._write_manifest, tmp_path / "work", receipts, []) for _ in range(200)]
        for job in jobs:
            job.result()
    assert len(json.loads((tmp_path / "work" / "manifest.json").read_text())["shards"]) == 20


def test_names_that_are_no_utf8(tmp_path, data, reduced):
    odd = os.fsdecode(b"x\xff")
    try:
        np.save(tmp_path / f"{odd}.npy", data.X)
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    np.save(tmp_path / "z.npy", data.z)
    found = reduced(find_shards([f"{tmp_path}/{odd}.npy"], labels=[f"{tmp_path}/z.npy"]))
    assert_exact(found.moments, data.moments)
    manifest = json.loads((tmp_path / "work" / "manifest.json").read_text())
    assert manifest["shards"][0]["shard"].endswith(f"{odd}.npy")


def test_a_file_is_no_work_folder(tmp_path, shards):
    for place in (tmp_path / "x00.npy", tmp_path / "x00.npy" / "work"):
        with pytest.raises(ParameterError, match="name a folder"):
            reduce_shards(shards, work_dir=place, engine=ONE())


def test_a_folder_that_takes_no_sums_is_told(shards, reduced, monkeypatch):
    def refuse(**options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(reducing_module, "TemporaryDirectory", refuse)
    with pytest.raises(ShardError, match=r"cannot be written to .*Read-only.* All parts are kept"):
        reduced(shards)


def test_progress_is_told(shards, reduced):
    told = []
    reduced(shards, announce=lambda receipt, total: told.append((receipt.rows, total)))
    assert told == [(30, 20)] * 20
