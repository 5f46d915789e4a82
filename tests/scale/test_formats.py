"""Every form that can be read gives the same moments, in batches, and knows its schema beforehand."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from repsurgery import ClassMoments
from repsurgery.errors import DamagedFileError, DataError, LabelError, MissingExtraError, ShapeError
from repsurgery.moments.stream import stream_moments
from repsurgery.scale import count_shard, dataset_shards, find_shards
from repsurgery.scale.formats import stored
from tests.moments.test_moments import assert_same
from tests.scale import written
from tests.scale.written import WRITERS, rows


def moments_of(shards, *, batch_rows=11):
    return stream_moments(batch for shard in shards for batch in shard.batches(batch_rows))


def assert_counts(shards, X, z):
    found, wanted = moments_of(shards), ClassMoments.of(X, z)
    assert found.labels == wanted.labels
    for label in wanted:
        assert_same(found[label], wanted[label])


def codes(z):
    return np.unique(z, return_inverse=True)[1]


@pytest.mark.parametrize("ending", WRITERS)
def test_labels_inside_the_file(tmp_path, ending):
    data = rows()
    for i, (X, z) in enumerate(data.pieces):
        WRITERS[ending](tmp_path / f"s{i}{ending}", X, z)
    named = ["vector"] if ending == ".zarr" else []
    shards = find_shards([f"{tmp_path}/*{ending}"], columns=named, label_column="label")
    text = ending not in (".safetensors", ".zarr")
    for shard, (X, _) in zip(shards, data.pieces, strict=True):
        schema = shard.schema()
        assert (schema.rows, schema.width, schema.dtype) == (*X.shape, "float32")
        assert schema.labels == ("text" if text else "number")
    assert_counts(shards, data.X, data.z if text else codes(data.z))
    assert max(len(X) for shard in shards for X, _ in shard.batches(11)) == 11


@pytest.mark.parametrize("ending", WRITERS)
def test_a_large_file_is_cut_into_shards(tmp_path, ending):
    data = rows()
    WRITERS[ending](tmp_path / f"s{ending}", data.X, data.z)
    named = ["vector"] if ending == ".zarr" else []
    shards = find_shards([f"{tmp_path}/s{ending}"], columns=named, label_column="label", rows_per_shard=70)
    assert [shard.schema().rows for shard in shards] == [70, 70, 60]
    assert shards[1].name.endswith("[70:140]")
    text = ending not in (".safetensors", ".zarr")
    assert_counts(shards, data.X, data.z if text else codes(data.z))


@pytest.mark.parametrize("form", ["plain", "lists"])
def test_plain_columns_and_lists_without_a_fixed_length(tmp_path, form):
    data = rows()
    written.write_parquet(tmp_path / "s.parquet", data.X, data.z, form=form)
    (shard,) = find_shards([f"{tmp_path}/s.parquet"], label_column="label")
    assert (shard.schema().rows, shard.schema().width, shard.schema().dtype) == (200, written.D, "float32")
    assert_counts([shard], data.X, data.z)
    if form == "plain":
        some = find_shards([f"{tmp_path}/s.parquet"], columns=["f4", "f0"], label_column="label")
        assert_counts(some, data.X[:, [4, 0]], data.z)


@pytest.mark.parametrize("labels", [(0, 1, 2), (False, True), ("x", "yy"), (0.0, 1.0)])
@pytest.mark.parametrize("dtype", ["float16", "float64", "int8"])
def test_labels_beside_npy_vectors(tmp_path, labels, dtype):
    data = rows(dtype=dtype, labels=labels)
    written.write_npy(tmp_path, data)
    shards = find_shards([f"{tmp_path}/x*.npy"], labels=[f"{tmp_path}/z*.npy"])
    assert [type(label) for label in moments_of(shards).labels] == [type(label) for label in labels]
    assert shards[0].schema().dtype == dtype
    assert_counts(shards, data.X, data.z)


def test_columns_that_lie_together_and_other_byte_orders(tmp_path):
    data = rows()
    np.save(tmp_path / "x0.npy", np.asfortranarray(data.X))
    np.save(tmp_path / "x1.npy", data.X.astype(">f4"))
    for i in range(2):
        np.save(tmp_path / f"z{i}.npy", data.z[:, None])
        pair = find_shards([f"{tmp_path}/x{i}.npy"], labels=[f"{tmp_path}/z{i}.npy"])
        assert pair[0].schema().dtype == "float32"
        assert_counts(pair, data.X, data.z)


def test_bfloat16_is_widened_exactly(tmp_path):
    torch = pytest.importorskip("torch", reason="bfloat16 is written by PyTorch, in the extra repsurgery[lm]")
    from safetensors.torch import save_file

    data = rows()
    X = torch.from_numpy(data.X).bfloat16()
    save_file({"hidden": X, "label": torch.from_numpy(codes(data.z))}, tmp_path / "s.safetensors")
    (shard,) = find_shards([f"{tmp_path}/s.safetensors"], label_column="label")
    assert shard.schema().dtype == "bfloat16"
    assert_counts([shard], X.float().numpy(), codes(data.z))


@pytest.mark.parametrize("array", ["vector", "label"])
def test_a_lost_chunk_of_zarr_is_no_zeros(tmp_path, array):
    data = rows()
    z = codes(data.z)
    z[16:32] = 0  # a chunk of one class, which its fill value would restore; Zarr is told to write it
    written.write_zarr(tmp_path / "s.zarr", data.X, z)
    (shard,) = find_shards([f"{tmp_path}/s.zarr"], columns=["vector"], label_column="label")
    assert_counts([shard], data.X, z)
    next(path for path in (tmp_path / "s.zarr" / array / "c").rglob("*") if path.is_file()).unlink()
    with pytest.raises(DamagedFileError, match=rf"s\.zarr, array '{array}', has 12 of 13 chunks.*write_empty_chunks"):
        count_shard(shard)


def test_a_lost_shard_of_zarr_is_no_zeros(tmp_path):
    data = rows()
    group = zarr.open_group(tmp_path / "s.zarr", mode="w")
    group.create_array("vector", data=data.X, chunks=(10, 2), shards=(150, 4))
    group.create_array("label", data=codes(data.z), chunks=(10,), shards=(150,))
    (shard,) = find_shards([f"{tmp_path}/s.zarr"], columns=["vector"], label_column="label")
    assert_counts([shard], data.X, codes(data.z))
    (tmp_path / "s.zarr" / "vector" / "c" / "1" / "1").unlink()
    with pytest.raises(DamagedFileError, match="has 3 of 4 chunks"):
        count_shard(shard)


def test_labels_of_zarr_that_were_left_out_are_refused(tmp_path):
    data = rows()
    written.write_zarr(tmp_path / "s.zarr", data.X, data.z)
    zeros = np.zeros(len(data.X), int)
    group = zarr.open_group(tmp_path / "s.zarr")
    group.create_array("label", data=zeros, overwrite=True)  # a class 0 of nothing but zeros is stored as no chunk
    (shard,) = find_shards([f"{tmp_path}/s.zarr"], columns=["vector"], label_column="label")
    with pytest.raises(DamagedFileError, match=r"0 of 1 chunks.*read as 0.*labels in another file"):
        count_shard(shard)
    np.save(tmp_path / "z.npy", zeros)
    (beside,) = find_shards([f"{tmp_path}/s.zarr"], columns=["vector"], labels=[f"{tmp_path}/z.npy"])
    assert_counts([beside], data.X, zeros)


def test_nulls_are_rows_that_are_not_finite(tmp_path):
    data = rows(n=20)
    lists = data.X.tolist()
    lists[4] = None
    lists[9][2] = None
    made = pa.table({"v": pa.array(lists, pa.list_(pa.float32(), written.D)), "label": data.z.tolist()})
    pq.write_table(made, tmp_path / "s.parquet")
    (shard,) = find_shards([f"{tmp_path}/s.parquet"], label_column="label")
    counted = count_shard(shard, skip_non_finite=True)
    assert counted.non_finite.first == (4, 9)
    keep = np.delete(np.arange(20), [4, 9])
    for label, m in ClassMoments.of(data.X[keep], data.z[keep]).items():
        assert_same(counted.moments[label], m)


@pytest.mark.parametrize("kind", ["saved", "in memory", "streamed", "by name"])
def test_hugging_face_datasets(tmp_path, monkeypatch, kind):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    datasets = pytest.importorskip("datasets", reason="data sets need the extra repsurgery[data]")
    data = rows()
    features = datasets.Features(
        {"vector": datasets.List(datasets.Value("float32"), length=written.D), "label": datasets.Value("string")}
    )
    whole = datasets.Dataset.from_dict({"vector": data.X, "label": data.z.tolist()}, features=features)
    if kind == "saved":
        datasets.DatasetDict({"test": whole}).save_to_disk(tmp_path / "saved", num_shards={"test": 3})
        shards = find_shards([f"{tmp_path}/saved"], label_column="label", split="test")
        assert len(shards) == 3
    elif kind == "in memory":
        shards = dataset_shards(whole, label_column="label")
        assert shards[0].schema().rows == 200
    elif kind == "streamed":
        shards = dataset_shards(whole.to_iterable_dataset(num_shards=3), label_column="label", key="mine")
        assert len(shards) == 3
        assert shards[0].schema().rows is None
    else:
        folder = tmp_path / "tables"
        folder.mkdir()
        for i, (X, z) in enumerate(data.pieces):
            written.write_parquet(folder / f"train-{i:05}-of-00003.parquet", X, z)
        shards = find_shards([f"hf:{folder}"], columns=["vector"], label_column="label")
        assert len(shards) == 3
        before = shards[0].fingerprint()
        assert find_shards([f"hf:{folder}"], columns=["vector"], label_column="label")[0].fingerprint() == before
    assert_counts(shards, data.X, data.z)


def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch):
    def absent(module):
        raise ImportError(module)

    monkeypatch.setattr(stored, "import_module", absent)
    (tmp_path / "s.parquet").write_bytes(b"")
    (shard,) = find_shards([f"{tmp_path}/s.parquet"], label_column="label")
    with pytest.raises(MissingExtraError, match=r"pyarrow: pip install 'repsurgery\[data\]'"):
        shard.schema()


@pytest.mark.parametrize("ending", [*WRITERS, ".npy"])
@pytest.mark.parametrize("damage", ["cut", "noise"])
def test_a_damaged_file_says_so(tmp_path, ending, damage):
    data = rows()
    path = tmp_path / f"s{ending}"
    if ending == ".npy":
        np.save(path, data.X)
    else:
        WRITERS[ending](path, data.X, data.z)
    if ending == ".zarr":
        victim = path / "zarr.json"
        victim.write_text("{" if damage == "cut" else "nonsense")
    else:
        held = path.read_bytes()
        path.write_bytes(held[: len(held) - 900] if damage == "cut" else b"noise" * 100)
    np.save(tmp_path / "z.npy", data.z)
    inside = {"labels": [f"{tmp_path}/z.npy"]} if ending == ".npy" else {"label_column": "label"}
    (shard,) = find_shards([str(path)], columns=["vector"] if ending == ".zarr" else [], **inside)
    with pytest.raises(DamagedFileError, match=path.name):
        shard.schema()
        list(shard.batches(1000))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"label_column": "mood"}, DataError, "'mood'"),
        ({"label_column": "label", "columns": ["nothing"]}, DataError, "nothing"),
        ({"label_column": "label", "columns": ["text"]}, DataError, "not numbers"),
    ],
)
def test_columns_that_are_not_there(tmp_path, change, error, words):
    data = rows()
    written.write_parquet(tmp_path / "s.parquet", data.X, data.z)
    (shard,) = find_shards([f"{tmp_path}/s.parquet"], **change)
    with pytest.raises(error, match=words):
        shard.schema()


def test_lists_of_several_lengths_are_refused(tmp_path):
    pq.write_table(pa.table({"v": [[1.0, 2.0], [1.0, 2.0, 3.0], [4.0]], "label": [0, 1, 0]}), tmp_path / "s.parquet")
    (shard,) = find_shards([f"{tmp_path}/s.parquet"], label_column="label")
    with pytest.raises(DataError, match="several lengths"):
        list(shard.batches(10))


def test_arrays_of_the_wrong_shape_are_refused(tmp_path):
    data = rows()
    written.write_npy(tmp_path, data)
    with pytest.raises(ShapeError, match=r"\(37,\).*patterns in quotes"):
        find_shards([f"{tmp_path}/z00.npy"], labels=[f"{tmp_path}/z00.npy"])[0].schema()
    with pytest.raises(LabelError, match="has 37 rows and"):
        find_shards([f"{tmp_path}/x00.npy"], labels=[f"{tmp_path}/z01.npy"])[0].schema()
    np.save(tmp_path / "o.npy", np.array([[None]]), allow_pickle=True)
    with pytest.raises(DataError, match=r"o\.npy"):
        find_shards([f"{tmp_path}/o.npy"], labels=[f"{tmp_path}/z01.npy"])[0].schema()
    zarr.open_group(tmp_path / "g.zarr", mode="w").create_array("v", data=data.X)
    with pytest.raises(DataError, match="Name the one to read"):
        find_shards([f"{tmp_path}/g.zarr"], label_column="label")[0].schema()


def test_bfloat16_is_rounded_as_torch_does():
    torch = pytest.importorskip("torch")
    bits = np.random.default_rng(0).integers(0, 2**32, 20000, dtype=np.uint32)
    halfway = (np.arange(2**12, dtype=np.uint32) << 16) + 0x3F808000  # ties between two neighbours
    values = np.concatenate([bits, halfway, [0, 0x80000000, 0x7F7FFFFF, 1]]).astype(np.uint32).view(np.float32)
    values = values[np.isfinite(values)]
    found = stored.widened(stored.narrowed(values))
    assert (found == torch.from_numpy(values).bfloat16().float().numpy()).all()
    assert (stored.widened(stored.narrowed(found)) == found).all()
