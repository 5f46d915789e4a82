"""Moments of several machines into one, and nothing twice."""

import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

from repsurgery import ClassMoments
from repsurgery.errors import DataError, FileFormatError, LabelError, ShapeError
from repsurgery.scale import LocalEngine, find_shards, merge_files, reduce_shards
from tests.scale.checks import assert_exact
from tests.scale.written import in_groups, write_parquet


@pytest.fixture
def counted(tmp_path, shards):
    """Return a function that counts some of the shards into a file."""

    def count(name, some):
        folder = tmp_path / f"{name}.work"
        reduce_shards(shards[some], work_dir=folder, engine=LocalEngine(workers=1)).save(tmp_path / name)
        return tmp_path / name

    return count


def test_merged_files_are_the_whole(tmp_path, data, counted):
    files = [counted("a", slice(0, 7)), counted("b", slice(7, 8)), counted("c", slice(8, 20))]
    merge_files(files, tmp_path / "m")
    assert_exact(ClassMoments.load(tmp_path / "m"), data.moments)
    pair = merge_files(files[:2], tmp_path / "ab")
    assert sum(m.count for m in pair.values()) == 240
    merge_files([tmp_path / "ab", files[2]], tmp_path / "again")
    assert_exact(ClassMoments.load(tmp_path / "again"), data.moments)


def test_merged_files_hold_the_groups_of_both(tmp_path):
    parts = [in_groups(0), in_groups(1)]
    for i, part in enumerate(parts):
        part.save(tmp_path / f"{i}")
    merge_files([tmp_path / "0", tmp_path / "1"], tmp_path / "m")
    merged, wanted = ClassMoments.load(tmp_path / "m"), parts[0] + parts[1]
    assert_exact(merged, wanted)
    for label in wanted:
        assert merged[label].groups == wanted[label].groups
    assert merged["many"].effective_count < merged["many"].count


def test_merging_refuses_to_count_twice(tmp_path, counted):
    a, b, c = counted("a", slice(0, 7)), counted("b", slice(6, 9)), counted("c", slice(9, 12))
    shutil.copy(a, tmp_path / "copy")
    (tmp_path / "link").symlink_to(a)
    for other, words in (
        ("a", "twice"),
        ("link", "twice"),
        ("copy", "same moments"),
        ("b", "share the rows of 1 shards"),
    ):
        with pytest.raises(DataError, match=words):
            merge_files([a, c, tmp_path / other], tmp_path / "m")
    merge_files([b, c], tmp_path / "bc")
    with pytest.raises(DataError, match="share the rows of 1 shards"):
        merge_files([tmp_path / "bc", a], tmp_path / "m")
    with pytest.raises(DataError, match="at least two"):
        merge_files([a], tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("change", ["cut", "touched", "copied", "read again without what is not finite"])
def test_the_same_rows_under_another_name_are_refused(tmp_path, counted, shards, change):
    a = counted("a", slice(0, 2))
    options, labels = {}, tmp_path / "z01.npy"
    again = replace(shards[1], start=10, stop=20) if change == "cut" else shards[1]
    if change == "touched":
        os.utime(tmp_path / "x01.npy", (1, 1))
    elif change == "copied":
        shutil.copy(tmp_path / "x01.npy", tmp_path / "y.npy")
        again = find_shards([str(tmp_path / "y.npy")], labels=[str(labels)])[0]
    elif change != "cut":
        options = {"skip_non_finite": True}
    given = [again, *shards[2:4]]
    reduce_shards(given, work_dir=tmp_path / "b.work", engine=LocalEngine(workers=1), **options).save(tmp_path / "b")
    with pytest.raises(DataError, match="share the rows of 1 shards"):
        merge_files([a, tmp_path / "b"], tmp_path / "m")


def test_other_columns_and_labels_are_the_same_rows(tmp_path, data):
    write_parquet(tmp_path / "s.parquet", data.X, data.z)
    ways = {"a": {"label_column": "text"}, "b": {"label_column": "label", "columns": ["vector"], "rows_per_shard": 400}}
    for name, options in ways.items():
        shards = find_shards([str(tmp_path / "s.parquet")], **options)
        reduce_shards(shards, work_dir=tmp_path / name, engine=LocalEngine(workers=1)).save(tmp_path / f"{name}.st")
    with pytest.raises(DataError, match="share the rows of 2 shards"):
        merge_files([tmp_path / "a.st", tmp_path / "b.st"], tmp_path / "m")


def test_pieces_of_one_file_that_do_not_overlap_are_merged(tmp_path, data, shards):
    for name, rows in (("a", (0, 10)), ("b", (10, 30))):
        piece = replace(shards[0], start=rows[0], stop=rows[1])
        reduce_shards([piece], work_dir=tmp_path / name, engine=LocalEngine(workers=1)).save(tmp_path / f"{name}.st")
    merged = merge_files([tmp_path / "a.st", tmp_path / "b.st"], tmp_path / "m")
    assert_exact(merged, ClassMoments.of(data.X[:30], data.z[:30]))


def test_files_that_do_not_fit_are_refused(tmp_path, counted):
    a = counted("a", slice(0, 7))
    rng = np.random.default_rng(0)
    ClassMoments.of(rng.normal(size=(9, 5)), ["a"] * 9).save(tmp_path / "narrow")
    ClassMoments.of(rng.normal(size=(9, 6)), [0] * 9).save(tmp_path / "numbers")
    (tmp_path / "noise").write_bytes(b"noise")
    cases = {"narrow": (ShapeError, "6 and 5"), "numbers": (LabelError, "labels"), "noise": (FileFormatError, "noise")}
    for name, (error, words) in cases.items():
        with pytest.raises(error, match=words):
            merge_files([a, tmp_path / name], tmp_path / "m")
    with pytest.raises(FileNotFoundError):
        merge_files([a, tmp_path / "absent"], tmp_path / "m")
