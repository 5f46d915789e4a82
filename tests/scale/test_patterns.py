"""Names in, shards out: matched, paired, each once, and held against each other before any work."""

import os

import numpy as np
import pytest

from repsurgery.errors import DataError, DuplicateWarning, LabelError, ParameterError, ShapeError
from repsurgery.scale import check_shards, count_shard, find_shards
from tests.scale.written import rows, write_npy, write_parquet


@pytest.fixture
def folder(tmp_path):
    write_npy(tmp_path, rows())
    return tmp_path


def names(shards):
    return [shard.name.rsplit("/", 1)[1] for shard in shards]


def test_patterns_are_matched_in_sorted_order(folder):
    shards = find_shards([f"{folder}/x*.npy"], labels=[f"{folder}/z*.npy"])
    assert names(shards) == ["x00.npy", "x01.npy", "x02.npy"]
    assert [shard.labels.path.name for shard in shards] == ["z00.npy", "z01.npy", "z02.npy"]


@pytest.mark.parametrize("way", ["twice", "two patterns", "link", "hard link"])
def test_a_shard_listed_twice_is_counted_once(folder, way):
    again = {"twice": "x01.npy", "two patterns": "x0[12].npy", "link": "y.npy", "hard link": "y.npy"}[way]
    if way == "link":
        (folder / "y.npy").symlink_to(folder / "x01.npy")
    if way == "hard link":
        os.link(folder / "x01.npy", folder / "y.npy")
    with pytest.warns(DuplicateWarning, match="counted once"):
        shards = find_shards([f"{folder}/x*.npy", f"{folder}/{again}"], labels=[f"{folder}/z*.npy"])
    assert names(shards) == ["x00.npy", "x01.npy", "x02.npy"]


def test_one_file_of_vectors_with_two_of_labels_is_refused(folder):
    with pytest.raises(LabelError, match="two files of labels"):
        find_shards([f"{folder}/x01.npy"] * 2, labels=[f"{folder}/z01.npy", f"{folder}/z02.npy"])


def test_numbers_that_sort_differently_are_refused(tmp_path):
    data = rows(n=22, cuts=range(2, 22, 2))
    write_npy(tmp_path, data, x="x{}.npy")
    with pytest.raises(LabelError, match=r"x10\.npy would be read with the labels of z02\.npy.*leading zeros"):
        find_shards([f"{tmp_path}/x*.npy"], labels=[f"{tmp_path}/z*.npy"])
    listed = [f"{tmp_path}/x{i}.npy" for i in range(11)]
    assert len(find_shards(listed, labels=[f"{tmp_path}/z*.npy"])) == 11


def paired(folder, x, z):
    """Return the names of the pairs that patterns find among files of these names."""
    for name in (*x, *z):
        (folder / name).parent.mkdir(exist_ok=True)
        np.save(folder / name, np.ones((2, 3)) if name in x else np.arange(2))
    shards = find_shards([f"{folder}/**/x*.npy"], labels=[f"{folder}/**/z*.npy"])
    return [(str(s.vectors.path.relative_to(folder)), str(s.labels.path.relative_to(folder))) for s in shards]


REFUSED = {
    "one of each missing": (["x0", "x1", "x2"], ["z0", "z2", "z3"]),
    "shifted by a missing one": (["x1", "x2", "x3"], ["z2", "z3", "z4"]),
    "sorted as text": (["x1", "x10", "x2"], ["z01", "z02", "z10"]),
    "of so many": (["x-0-of-3", "x-1-of-3", "x-2-of-3"], ["z-0-of-3", "z-2-of-3", "z-3-of-3"]),
    "days": (["x-2024-01-30", "x-2024-01-31", "x-2024-02-01"], ["z-2024-01-31", "z-2024-02-01", "z-2024-02-02"]),
    "months, the same day": (["x-2024-01-01", "x-2024-02-01"], ["z-2024-02-01", "z-2024-03-01"]),
    "folders": (["run1/x", "run2/x", "run3/x"], ["run1/z", "run3/z", "run4/z"]),
    "sorted as text and as numbers": ([f"x{i}" for i in range(1, 13)], [f"z{i}" for i in range(101, 113)]),
    "one number more": (["x0-of-9", "x1-of-9", "x2-of-9"], ["z0", "z2", "z3"]),
}
ACCEPTED = {
    "the same": (["x3", "x5"], ["z3", "z5"]),
    "from 0 and from 1": (["x000", "x001", "x002", "x003"], ["z1", "z2", "z3", "z4"]),
    "from 1 and from 0": (["x1", "x2"], ["z0", "z1"]),
    "nothing in common": (["x10", "x11"], ["z2", "z3"]),
    "of so many": (["x-00000-of-00002", "x-00001-of-00002"], ["z-00000-of-00002", "z-00001-of-00002"]),
    "the last one constant": (["x0-v2", "x1-v2"], ["z0-v3", "z1-v3"]),
    "dates and days": (["x-20240101", "x-20240102"], ["z0", "z1"]),
    "no numbers here": (["xa", "xb"], ["z0", "z1"]),
    "no numbers there": (["x1", "x2"], ["za", "zb"]),
    "folders that start anew": (["run0/x0", "run0/x1", "run1/x0", "run1/x1"], ["z0", "z1", "z2", "z3"]),
    "no series": (["x0", "xf8"], ["z0", "z1"]),
    "one file": (["x1"], ["z2"]),
    "folders": (["run1/x", "run2/x"], ["run1/z", "run2/z"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_numbers_tell_which_files_belong_together(tmp_path, case):
    x, z = ([f"{name}.npy" for name in names] for names in REFUSED[case])
    with pytest.raises(LabelError, match=r"would be read with the labels of .*add files that are missing.*links"):
        paired(tmp_path, x, z)


def test_links_say_which_files_belong_together(tmp_path):
    x, z = ["x0.npy", "x1.npy", "x2.npy"], ["z0.npy", "z2.npy", "z3.npy"]
    with pytest.raises(LabelError, match=r"x1\.npy would be read with the labels of z2\.npy"):
        paired(tmp_path, x, z)
    for i, name in enumerate(z):
        (tmp_path / f"label{i}.npy").symlink_to(tmp_path / name)
    shards = find_shards([f"{tmp_path}/x*.npy"], labels=[f"{tmp_path}/label*.npy"])
    assert [(shard.vectors.path.name, shard.labels.path.name) for shard in shards] == list(zip(x, z, strict=True))


@pytest.mark.parametrize("case", ACCEPTED)
def test_numbers_that_say_nothing_are_no_obstacle(tmp_path, case):
    x, z = ([f"{name}.npy" for name in names] for names in ACCEPTED[case])
    assert paired(tmp_path, x, z) == list(zip(x, z, strict=True))


@pytest.mark.parametrize("way", ["listed", "link"])
def test_a_file_of_labels_serves_one_file_of_vectors(folder, way):
    again = "z00.npy"
    if way == "link":
        again = "again.npy"
        os.link(folder / "z00.npy", folder / again)
    labels = [f"{folder}/z00.npy", f"{folder}/{again}"]
    with pytest.raises(LabelError, match=r"z00\.npy is listed as the labels of .*x00\.npy and of .*x01\.npy|again"):
        find_shards([f"{folder}/x00.npy", f"{folder}/x01.npy"], labels=labels)
    slices = find_shards([f"{folder}/x00.npy"], labels=[f"{folder}/z00.npy"], rows_per_shard=10)
    assert [shard.labels.path.name for shard in slices] == ["z00.npy"] * 4
    for i, (X, z) in enumerate(rows().pieces):
        write_parquet(folder / f"s{i}.parquet", X, z)
    assert len(find_shards([f"{folder}/s*.parquet"], label_column="label")) == 3


@pytest.mark.parametrize(
    ("sources", "options", "error", "words"),
    [
        (["none*.npy"], {"labels": ["z*.npy"]}, DataError, "Nothing matches"),
        (["x*.npy"], {"labels": ["none.npy"]}, DataError, "Nothing matches"),
        (["x*.npy"], {}, LabelError, "--labels"),
        (["x*.npy"], {"label_column": "label"}, LabelError, "cannot hold labels"),
        (["x*.npy"], {"labels": ["z0[01].npy"]}, LabelError, "3 files of vectors .* and 2 of labels"),
        (["."], {"labels": ["z*.npy"]}, DataError, "is a folder"),
        ([], {"labels": ["z*.npy"]}, ParameterError, "no source"),
        (["x*.npy"], {"labels": ["z*.npy"], "rows_per_shard": 0}, ParameterError, "at least one row"),
        (["notes.txt"], {"labels": ["z00.npy"]}, DataError, r"ends in '\.txt'"),
        (["x00.npy"], {"labels": ["z00.npy"], "columns": ["a", "b"]}, DataError, "is not a table"),
    ],
)
def test_words_that_name_nothing(folder, monkeypatch, sources, options, error, words):
    monkeypatch.chdir(folder)
    (folder / "notes.txt").write_text("no vectors")
    with pytest.raises(error, match=words):
        find_shards(sources, **options)


def test_shards_that_do_not_belong_together_are_refused(folder):
    def check(*more):
        for i, X in enumerate(more):
            np.save(folder / f"more{i}.npy", X)
            np.save(folder / f"other{i}.npy", np.array(["a"] * len(X)))
        found = find_shards([f"{folder}/x*.npy", f"{folder}/more*.npy"], labels=[f"{folder}/z*", f"{folder}/other*"])
        check_shards(found)

    with pytest.raises(ShapeError, match=r"x00\.npy and .*more0\.npy differ in width: 6 and 5"):
        check(np.ones((4, 5), "f4"))
    with pytest.raises(DataError, match=r"x00\.npy and .*more0\.npy differ in dtype: float32 and float64"):
        check(np.ones((4, 6)))
    with pytest.raises(DataError, match=r"more0\.npy is empty"):
        check(np.ones((0, 6), "f4"))
    np.save(folder / "z02.npy", np.arange(90))
    with pytest.raises(LabelError, match="differ in their labels: text and number"):
        check(np.ones((4, 6), "f4"))


def test_a_damaged_shard_does_not_stop_the_others(folder):
    (folder / "x01.npy").write_bytes(b"noise")
    found = check_shards(find_shards([f"{folder}/x*.npy"], labels=[f"{folder}/z*.npy"]))
    assert names(found.shards) == ["x00.npy", "x02.npy"]
    assert list(found.unreadable) == [f"{folder}/x01.npy"]


def test_the_same_shard_twice_in_a_list_is_refused(folder):
    shards = find_shards([f"{folder}/x*.npy"], labels=[f"{folder}/z*.npy"])
    with pytest.raises(DataError, match="counted twice"):
        check_shards([*shards, shards[1]])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_not_finite_are_counted_located_and_refused(tmp_path, bad):
    data = rows()
    where = [3, 40, 41, 42, 43, 44, 199]
    X = data.X.copy()
    X[where, 1] = bad
    X[7] = 3e38  # large, and finite
    write_parquet(tmp_path / "s.parquet", X, data.z)
    (shard,) = find_shards([f"{tmp_path}/s.parquet"], label_column="label")
    for size in (1, 16, None):
        with pytest.raises(
            DataError, match=r"^7 rows with NaN or infinity \(3, 40, 41, 42, 43, …\).*--skip-non-finite"
        ):
            count_shard(shard, batch_rows=size)
    counted = count_shard(shard, skip_non_finite=True, batch_rows=16)
    assert (counted.rows, counted.non_finite.count) == (200, 7)
    assert sum(m.count for m in counted.moments.values()) == 193


@pytest.mark.parametrize("batch_rows", [1, 7, None])
def test_rows_of_a_cut_file_are_located_in_the_file(tmp_path, batch_rows):
    data = rows()
    where = [3, 71, 72, 139, 199]
    X = data.X.copy()
    X[where] = np.nan
    write_parquet(tmp_path / "s.parquet", X, data.z)
    shards = find_shards([f"{tmp_path}/s.parquet"], label_column="label", rows_per_shard=70)
    counted = [count_shard(shard, skip_non_finite=True, batch_rows=batch_rows) for shard in shards]
    assert [found.non_finite.first for found in counted] == [(3,), (71, 72, 139), (199,)]
    assert [found.rows for found in counted] == [70, 70, 60]
    with pytest.raises(DataError, match=r"^3 rows with NaN or infinity \(71, 72, 139\)"):
        count_shard(shards[1], batch_rows=batch_rows)


def test_a_shard_without_one_finite_row_counts_nothing(tmp_path):
    write_parquet(tmp_path / "s.parquet", np.full((5, 3), np.nan, "f4"), np.array(["a"] * 5))
    (shard,) = find_shards([f"{tmp_path}/s.parquet"], label_column="label")
    found = count_shard(shard, skip_non_finite=True)
    assert (len(found.moments), found.rows, found.non_finite.count) == (0, 5, 5)
    with pytest.raises(DataError, match=r"^5 rows with NaN"):
        count_shard(shard)
    with pytest.raises(ParameterError, match="batch_rows is 0"):
        count_shard(shard, batch_rows=0)
