"""Tables: which columns are features, in what order, and what a null or a huge batch costs."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from repsurgery import ClassMoments
from repsurgery.errors import DataError
from repsurgery.scale import check_shards, count_shard, dataset_shards, find_shards
from tests.moments.test_moments import assert_same
from tests.scale import written
from tests.scale.written import rows


def one(path, **options):
    (shard,) = find_shards([str(path)], label_column="label", **options)
    return shard


def assert_counted(shard, X, z, **options):
    counted = count_shard(shard, **options).moments
    for label, wanted in ClassMoments.of(X, z).items():
        assert_same(counted[label], wanted)


@pytest.mark.parametrize("ending", [".parquet", ".feather"])
@pytest.mark.parametrize(
    ("second", "remedy"),
    [
        (["f1", "f0", "f2"], r"number 0 is 'f0' and 'f1'\. Give their order with --column"),
        (["f0", "f1", "g2"], r"number 2 is 'f2' and 'g2'\. Name those that all of them have with --column"),
    ],
)
def test_columns_in_another_order_are_refused(tmp_path, ending, second, remedy):
    data = rows(d=3)
    write = pq.write_table if ending == ".parquet" else feather.write_feather
    for i, (names, (X, z)) in enumerate(zip((["f0", "f1", "f2"], second), data.pieces[:2], strict=True)):
        columns = {name: X[:, j] for j, name in enumerate(names)}
        write(pa.table({**columns, "label": z.tolist()}), tmp_path / f"s{i}{ending}")
    pattern = [f"{tmp_path}/s*{ending}"]
    with pytest.raises(DataError, match=remedy):
        check_shards(find_shards(pattern, label_column="label"))
    if "g2" not in second:
        shards = check_shards(find_shards(pattern, columns=["f0", "f1"], label_column="label")).shards
        (X, z), (Y, y) = data.pieces[:2]
        assert_counted(shards[1], Y[:, [1, 0]], y)
        assert_counted(shards[0], X[:, :2], z)


def test_tables_beside_arrays_have_one_order_too(tmp_path):
    data = rows(n=60, d=2, cuts=(20, 40))
    names = ["a", "b"]
    for i, (X, z) in enumerate(data.pieces):
        np.save(tmp_path / f"z{i}.npy", z)
        if i == 0:
            np.save(tmp_path / f"x{i}.npy", X)
        else:
            pq.write_table(pa.table({name: X[:, j] for j, name in enumerate(names)}), tmp_path / f"x{i}.parquet")
    found = find_shards([f"{tmp_path}/x*"], labels=[f"{tmp_path}/z*"])
    assert [shard.schema().features for shard in check_shards(found).shards] == [None, ("a", "b"), ("a", "b")]
    X = data.pieces[2][0]
    pq.write_table(pa.table({"b": X[:, 0], "a": X[:, 1]}), tmp_path / "x2.parquet")
    with pytest.raises(DataError, match=r"x1\.parquet and .*x2\.parquet differ in their features"):
        check_shards(found)


def test_lists_of_other_names_are_refused(tmp_path):
    for i, name in enumerate(["layer3", "layer4"]):
        pq.write_table(pa.table({name: [[1.0, 2.0]] * 4, "label": [0, 1] * 2}), tmp_path / f"s{i}.parquet")
    with pytest.raises(DataError, match="'layer3' and 'layer4'"):
        check_shards(find_shards([f"{tmp_path}/*.parquet"], label_column="label"))


@pytest.mark.parametrize("index", ["left over", "named", "range"])
def test_the_index_of_pandas_is_no_feature(tmp_path, index):
    data = rows(d=3)
    frame = pd.DataFrame(data.X, columns=["a", "b", "c"]).assign(label=data.z, number=np.arange(200) ** 2)
    if index == "left over":
        frame = frame.drop(columns="number").sample(frac=1, random_state=0)
    elif index == "named":
        frame = frame.set_index("number")
    else:
        frame = frame.drop(columns="number")
    frame.to_parquet(tmp_path / "s.parquet")
    stored = pq.read_schema(tmp_path / "s.parquet").names
    assert len(stored) == (4 if index == "range" else 5)  # the index is a column of the file
    assert one(tmp_path / "s.parquet").schema().features == ("a", "b", "c")
    assert_counted(one(tmp_path / "s.parquet"), data.X, data.z)
    if index == "named":
        named = one(tmp_path / "s.parquet", columns=["a", "number"])
        assert named.schema().features == ("a", "number")


def test_two_columns_of_one_name_are_refused(tmp_path):
    made = pa.Table.from_arrays([pa.array([1.0, 2.0])] * 2 + [pa.array([0, 1])], ["a", "a", "label"])
    feather.write_feather(made, tmp_path / "s.feather")
    with pytest.raises(DataError, match="two columns 'a'"):
        one(tmp_path / "s.feather").schema()


@pytest.mark.parametrize("form", ["plain", "lists", "fixed", "stream"])
@pytest.mark.parametrize("kind", ["int8", "uint16", "int64"])
def test_a_null_among_integers_does_not_depend_on_the_batches(tmp_path, form, kind):
    data = rows(n=40, d=3, dtype="int8")
    columns = [[int(x) for x in column] for column in abs(data.X.T)]
    columns[1][25] = None
    if form == "plain":
        held = {f"f{i}": pa.array(column, getattr(pa, kind)()) for i, column in enumerate(columns)}
    else:
        of = getattr(pa, kind)()
        held = {"v": pa.array(list(zip(*columns, strict=True)), pa.list_(of, 3) if form == "fixed" else pa.list_(of))}
    made = pa.table({**held, "label": data.z.tolist()})
    if form == "stream":
        datasets = pytest.importorskip("datasets", reason="data sets need the extra repsurgery[data]")
        (shard,) = dataset_shards(datasets.Dataset(made), label_column="label")
    else:
        pq.write_table(made, tmp_path / "s.parquet")
        shard = one(tmp_path / "s.parquet")
    assert shard.schema().dtype == "float64"
    keep = np.delete(np.arange(40), 25)
    for size in (1, 7, 40):
        assert {X.dtype.name for X, _ in shard.batches(size)} == {"float64"}
        assert count_shard(shard, batch_rows=size, skip_non_finite=True).non_finite.first == (25,)
        assert_counted(shard, abs(data.X[keep]).astype("int64"), data.z[keep], batch_rows=size, skip_non_finite=True)


@pytest.mark.parametrize("form", ["parquet", "feather", "stream"])
def test_lists_that_begin_with_nulls(tmp_path, form):
    data = rows(n=40)
    lists = [None if i in (0, 1, 2, 30) else row for i, row in enumerate(data.X.tolist())]
    made = pa.table({"v": pa.array(lists, pa.list_(pa.float32())), "label": data.z.tolist()})
    if form == "stream":
        datasets = pytest.importorskip("datasets", reason="data sets need the extra repsurgery[data]")
        (shard,) = dataset_shards(datasets.Dataset(made), label_column="label")
    else:
        write = {"parquet": pq.write_table, "feather": feather.write_feather}[form]
        write(made, tmp_path / f"s.{form}")
        shard = one(tmp_path / f"s.{form}")
    assert (shard.schema().rows, shard.schema().width) == (40, written.D)
    keep = np.delete(np.arange(40), [0, 1, 2, 30])
    for size in (1, 3, 40):
        assert count_shard(shard, batch_rows=size, skip_non_finite=True).non_finite.first == (0, 1, 2, 30)
        assert_counted(shard, data.X[keep], data.z[keep], batch_rows=size, skip_non_finite=True)


def test_lists_whose_length_changes_with_the_batch_are_refused(tmp_path):
    lists = [[1.0, 2.0]] * 4 + [[1.0, 2.0, 3.0]] * 4
    pq.write_table(pa.table({"v": lists, "label": [0, 1] * 4}), tmp_path / "s.parquet")
    for size in (1, 4, 8):
        with pytest.raises(DataError, match="several lengths"):
            list(one(tmp_path / "s.parquet").batches(size))


def anonymous_bytes():
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the kernel tells no memory by kind")
@pytest.mark.parametrize("kind", ["file", "stream"])
def test_one_huge_batch_of_arrow_is_not_held(tmp_path, kind):
    n, d = 100_000, 128
    X = np.arange(n * d, dtype="float32").reshape(n, d)
    made = pa.table({"v": written.fixed_lists(X), "label": np.arange(n) % 2})
    with (
        pa.OSFile(str(tmp_path / "s.arrow"), "wb") as file,
        {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}[kind](file, made.schema) as stream,
    ):
        stream.write_table(made)
    del made
    shard = one(tmp_path / "s.arrow")
    assert shard.schema().rows == n
    before, most, at = anonymous_bytes(), 0, 0
    for batch, labels in shard.batches(1000):
        assert (batch == X[at : at + 1000]).all()
        assert (labels == np.arange(at, at + 1000) % 2).all()
        at += len(batch)
        most = max(most, anonymous_bytes() - before)
    assert at == n
    assert most < X.nbytes / 4  # the batch itself is X.nbytes


def test_batches_outlive_the_file(tmp_path):
    data = rows()
    written.write_feather(tmp_path / "s.feather", data.X, data.z)
    held = list(one(tmp_path / "s.feather").batches(1000))
    (tmp_path / "s.feather").unlink()
    assert (np.concatenate([X for X, _ in held]) == data.X).all()


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_slices_of_arrow_files_open_their_own_batches(tmp_path, compression):
    data = rows()
    feather.write_feather(written.table(data.X, data.z), tmp_path / "s.feather", chunksize=16, compression=compression)
    shards = find_shards([f"{tmp_path}/s.feather"], label_column="label", rows_per_shard=37)
    for i, shard in enumerate(shards):
        assert_counted(shard, data.X[37 * i : 37 * (i + 1)], data.z[37 * i : 37 * (i + 1)], batch_rows=5)
