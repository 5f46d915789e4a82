"""A damaged file is told by name and stops no other; what is no number and no label is refused before any work."""

import io
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from safetensors.numpy import save_file

from repsurgery.errors import DamagedFileError, DataError, LabelError
from repsurgery.scale import Shard, check_shards, count_shard, find_shards
from tests.scale import written
from tests.scale.written import rows


def npy(descr="'<f4'", shape="(200, 6)", *, size=4800):
    """Return a file of this header and as many bytes of data."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
    header = header.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(size)


def npz():
    stream = io.BytesIO()
    np.savez(stream, X=rows().X)
    return stream.getvalue()


DAMAGED_NPY = {
    "archive": npz(),
    "half an archive": npz()[:50],
    "negative": npy(shape="(-200, 6)"),
    "twice negative": npy(shape="(-200, -6)"),
    "enormous": npy(shape=f"({2**62}, {2**62})"),
    "shape of text": npy(shape="('a', 6)"),
    "no shape": npy(shape="None"),
    "no dtype": npy("'what'"),
    "no dictionary": b"\x93NUMPY\x01\x00\x05\x00[[[[[",
    "nothing": b"",
}


def told_alone(shards, victim):
    """Return what is said of the one shard that cannot be read; the others can."""
    found = check_shards(shards)
    assert [shard.name for shard in found.shards] == [shard.name for shard in shards if shard.name != str(victim)]
    assert list(found.unreadable) == [str(victim)]
    return found.unreadable[str(victim)]


def test_the_header_of_these_tests_is_sound(tmp_path):
    (tmp_path / "x.npy").write_bytes(npy())
    assert np.load(tmp_path / "x.npy").shape == (200, 6)


@pytest.mark.parametrize("damage", DAMAGED_NPY)
@pytest.mark.parametrize("role", ["vectors", "labels"])
@pytest.mark.parametrize("rows_per_shard", [None, 1000])
def test_a_damaged_npy_stops_no_other(tmp_path, damage, role, rows_per_shard):
    written.write_npy(tmp_path, rows())
    victim = tmp_path / ("x01.npy" if role == "vectors" else "z01.npy")
    victim.write_bytes(DAMAGED_NPY[damage])
    shards = find_shards([f"{tmp_path}/x*"], labels=[f"{tmp_path}/z*"], rows_per_shard=rows_per_shard)
    told = told_alone(shards, tmp_path / "x01.npy")
    assert told.startswith(str(victim))
    assert ("numpy.save" in told) == ("archive" in damage)
    with pytest.raises(DamagedFileError, match=victim.name):
        shards[1].schema()


def test_python_objects_are_called_so(tmp_path):
    np.save(tmp_path / "x.npy", np.array([[None, 1.0]]), allow_pickle=True)
    np.save(tmp_path / "z.npy", np.array([0]))
    with pytest.raises(DataError, match=r"x\.npy holds Python objects.*save numbers or text") as caught:
        find_shards([f"{tmp_path}/x.npy"], labels=[f"{tmp_path}/z.npy"])[0].schema()
    assert not isinstance(caught.value, DamagedFileError)


def change_header(path, change):
    held = path.read_bytes()
    size = int.from_bytes(held[:8], "little")
    header = json.loads(held[8 : 8 + size])
    text = json.dumps(change(header)).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + held[8 + size :])


def altered(**facts):
    def change(header):
        entry = {**header["vector"], **facts}
        return {**header, "vector": {key: value for key, value in entry.items() if value is not Ellipsis}}

    return change


DAMAGED_SAFETENSORS = {
    "no shape": altered(shape=...),
    "no dtype": altered(dtype=...),
    "no offsets": altered(data_offsets=...),
    "one offset": altered(data_offsets=[0]),
    "no offset": altered(data_offsets=[]),
    "offsets of text": altered(data_offsets=["0", "1752"]),
    "negative offset": altered(data_offsets=[-4, 1748]),
    "shape of one number": altered(shape=438),
    "shape of text": altered(shape=["73", "6"]),
    "negative shape": altered(shape=[-73, -6]),
    "fractional shape": altered(shape=[73.0, 6]),
    "another shape": altered(shape=[72, 6]),
    "another dtype": altered(dtype="F16"),
    "beyond the end": altered(data_offsets=[10**6, 10**6 + 1752]),
    "an entry that is none": lambda header: {**header, "vector": 3},
    "a list": lambda header: [header],
}


@pytest.mark.parametrize("damage", DAMAGED_SAFETENSORS)
@pytest.mark.parametrize("columns", [[], ["vector"]])
def test_a_damaged_header_of_safetensors_stops_no_other(tmp_path, damage, columns):
    for i, (X, z) in enumerate(rows().pieces):
        written.write_safetensors(tmp_path / f"s{i}.safetensors", X, z)
    victim = tmp_path / "s1.safetensors"
    change_header(victim, lambda header: header)
    shards = find_shards([f"{tmp_path}/s*"], columns=columns, label_column="label")
    assert not check_shards(shards).unreadable
    change_header(victim, DAMAGED_SAFETENSORS[damage])
    assert told_alone(shards, victim).startswith(str(victim))


@pytest.mark.parametrize("victim", ["zarr.json", "vector/zarr.json", "label/zarr.json"])
@pytest.mark.parametrize("text", ["{", '{"zarr_format": 3, "node_type": "what"}', "[]", ""])
def test_damaged_metadata_of_zarr_stop_no_other(tmp_path, victim, text):
    for i, (X, z) in enumerate(rows().pieces):
        written.write_zarr(tmp_path / f"s{i}.zarr", X, z)
    shards = find_shards([f"{tmp_path}/s*"], columns=["vector"], label_column="label")
    assert not check_shards(shards).unreadable
    (tmp_path / "s1.zarr" / victim).write_text(text)
    assert "s1.zarr" in told_alone(shards, tmp_path / "s1.zarr")


def test_a_damaged_chunk_of_zarr_is_told(tmp_path):
    data = rows()
    written.write_zarr(tmp_path / "s.zarr", data.X, data.z)
    (shard,) = find_shards([f"{tmp_path}/s.zarr"], columns=["vector"], label_column="label")
    (tmp_path / "s.zarr" / "vector" / "c" / "1" / "0").write_bytes(b"noise")
    with pytest.raises(DamagedFileError, match=r"s\.zarr is damaged"):
        count_shard(shard)


def test_a_file_that_is_gone_or_strange_stops_no_other(tmp_path):
    for i, (X, z) in enumerate(rows().pieces):
        written.write_safetensors(tmp_path / f"s{i}.safetensors", X, z)
    shards = find_shards([f"{tmp_path}/s*"], label_column="label")
    (tmp_path / "s1.safetensors").unlink()
    assert "No such file" in told_alone(shards, tmp_path / "s1.safetensors")

    class Strange(Shard):
        name = "strange"

        def schema(self):
            raise KeyError("what")

        def fingerprint(self):
            return {}

        def batches(self, rows):
            yield from ()

    assert "KeyError('what')" in told_alone([shards[0], Strange(), shards[2]], "strange")


NO_NUMBERS = {
    "bool": np.ones((4, 2), bool),
    "datetime64": np.zeros((4, 2), "datetime64[s]"),
    "timedelta64": np.zeros((4, 2), "timedelta64[ns]"),
    "bytes": np.full((4, 2), b"1"),
    "complex": np.ones((4, 2), "complex64"),
    "str": np.full((4, 2), "1"),
    "void": np.zeros((4, 2), "V4"),
}


def write_array(path, X, z=None):
    """Write vectors, with labels in them where the form can hold both."""
    if path.suffix == ".npy":
        np.save(path, X)
    elif path.suffix == ".safetensors":
        save_file({"vector": X, "label": np.arange(len(X)) if z is None else z}, path)
    else:
        group = zarr.open_group(path, mode="w")
        group.create_array("vector", data=X, config={"write_empty_chunks": True})
        label = np.arange(len(X)) if z is None else z
        group.create_array("label", data=label, config={"write_empty_chunks": True})


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize(
    ("ending", "kind"),
    [*((".npy", kind) for kind in NO_NUMBERS), (".safetensors", "bool")]
    + [(".zarr", kind) for kind in NO_NUMBERS if kind not in ("void",)],
)
def test_vectors_that_are_no_numbers_are_refused_by_the_schema(tmp_path, ending, kind):
    path = tmp_path / f"x{ending}"
    write_array(path, NO_NUMBERS[kind])
    np.save(tmp_path / "z.npy", np.arange(4))
    inside = {"labels": [f"{tmp_path}/z.npy"]} if ending == ".npy" else {"label_column": "label"}
    (shard,) = find_shards([str(path)], columns=["vector"] if ending == ".zarr" else [], **inside)
    with pytest.raises(DataError, match=rf"x{ending} holds {kind}.*not numbers"):
        shard.schema()
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    write_array(path, np.ones((4, 2), "int16"))
    assert shard.schema().dtype == "int16"


@pytest.mark.parametrize("kind", [pa.bool_(), pa.timestamp("s"), pa.string()])
@pytest.mark.parametrize("form", ["list", "plain"])
def test_columns_that_are_no_numbers_are_refused_by_the_schema(tmp_path, kind, form):
    values = pa.array([1, 0, 1, 0]).cast(kind)
    if form == "list":
        values = pa.FixedSizeListArray.from_arrays(values, 1)
    pq.write_table(pa.table({"v": values, "label": [0, 1] * 2}), tmp_path / "s.parquet")
    (shard,) = find_shards([f"{tmp_path}/s.parquet"], columns=["v"], label_column="label")
    with pytest.raises(DataError, match=r"s\.parquet .*not numbers"):
        shard.schema()


NO_LABELS = [
    np.array([b"a", b"b"]),
    np.array([0, 1], "datetime64[D]"),
    np.array([0, 1], "timedelta64[s]"),
    np.array([0, 1], "complex128"),
    np.zeros(2, "V3"),
]


@pytest.mark.parametrize("labels", NO_LABELS, ids=lambda labels: labels.dtype.name)
def test_labels_that_are_none_are_refused_by_the_schema(tmp_path, labels):
    np.save(tmp_path / "x.npy", np.ones((2, 3)))
    np.save(tmp_path / "z.npy", labels)
    (shard,) = find_shards([f"{tmp_path}/x.npy"], labels=[f"{tmp_path}/z.npy"])
    with pytest.raises(LabelError, match=r"z\.npy has labels of dtype .*booleans, integers or strings"):
        shard.schema()
    for good, family in (([0, 1], "number"), ([True, False], "boolean"), (["a", "b"], "text"), ([0.0, 1.0], "number")):
        np.save(tmp_path / "z.npy", np.array(good))
        assert shard.schema().labels == family


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.timestamp("s"), pa.date32(), pa.decimal128(3, 1), pa.list_(pa.int64()), pa.null()], ids=str
)
def test_columns_that_are_no_labels_are_refused_by_the_schema(tmp_path, kind):
    made = pa.table({"v": [[1.0, 2.0]] * 2, "label": pa.array([None, None], kind)})
    pq.write_table(made, tmp_path / "s.parquet")
    (shard,) = find_shards([f"{tmp_path}/s.parquet"], columns=["v"], label_column="label")
    with pytest.raises(LabelError, match=r"s\.parquet has labels of dtype"):
        shard.schema()


@pytest.mark.parametrize(
    ("labels", "words"), [([0.5, 1.0], "continuous"), ([np.nan, 1.0], "NaN"), (["a", None], "None")]
)
def test_errors_of_labels_begin_with_the_shard(tmp_path, labels, words):
    pq.write_table(
        pa.table({"v": [[1.0, 2.0]] * 2, "label": pa.array(labels, from_pandas=False)}), tmp_path / "s.parquet"
    )
    (shard,) = find_shards([f"{tmp_path}/s.parquet"], label_column="label")
    with pytest.raises(LabelError, match=rf"^{tmp_path}/s\.parquet: got .*{words}") as caught:
        count_shard(shard)
    assert "stream_moments" not in str(caught.value)
