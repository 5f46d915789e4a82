"""Shards of labelled vectors, written in every form that can be read."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from pyarrow import feather
from safetensors.numpy import save_file

from repsurgery import ClassMoments

D = 6


@dataclass(frozen=True)
class Rows:
    """Vectors and labels, whole and cut into pieces."""

    X: np.ndarray
    z: np.ndarray
    cuts: tuple[int, ...]

    @property
    def pieces(self):
        return list(zip(np.split(self.X, self.cuts), np.split(self.z, self.cuts), strict=True))

    @property
    def moments(self):
        return ClassMoments.of(self.X, self.z)


def rows(n=200, d=D, *, seed=0, dtype="float32", labels=("a", "b", "c"), cuts=(37, 110)):
    rng = np.random.default_rng(seed)
    z = rng.integers(0, len(labels), n)
    X = (rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 3 + z[:, None]).astype(dtype)
    return Rows(X, np.array(labels)[z], tuple(cuts))


def write_npy(folder: Path, data: Rows, *, x="x{:02}.npy", z="z{:02}.npy"):
    for i, (X, labels) in enumerate(data.pieces):
        np.save(folder / x.format(i), X)
        np.save(folder / z.format(i), labels)


def fixed_lists(X):
    return pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])


def table(X, z, *, form="fixed"):
    if form == "plain":
        columns = {f"f{i}": X[:, i] for i in range(X.shape[1])}
        return pa.table({**columns, "label": z.tolist()})
    vectors = fixed_lists(X) if form == "fixed" else pa.array(list(X))
    return pa.table({"vector": vectors, "label": z.tolist(), "text": ["…"] * len(X)})


def write_parquet(path, X, z, *, form="fixed", row_group_size=16):
    pq.write_table(table(X, z, form=form), path, row_group_size=row_group_size)


def write_feather(path, X, z):
    feather.write_feather(table(X, z), path, chunksize=16)


def write_stream(path, X, z):
    made = table(X, z)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, made.schema) as stream:
        stream.write_table(made, max_chunksize=16)


def write_safetensors(path, X, z):
    codes = np.unique(z, return_inverse=True)[1].astype(np.int32)
    save_file({"vector": np.ascontiguousarray(X), "label": codes}, path)


def write_zarr(path, X, z, *, chunk=16):
    group = zarr.open_group(path, mode="w")
    whole = {"write_empty_chunks": True}
    group.create_array("vector", data=X, chunks=(chunk, X.shape[1]), config=whole)
    group.create_array("label", data=np.unique(z, return_inverse=True)[1], chunks=(chunk,), config=whole)


WRITERS = {
    ".parquet": write_parquet,
    ".feather": write_feather,
    ".arrow": write_stream,
    ".safetensors": write_safetensors,
    ".zarr": write_zarr,
}


def in_groups(rank):
    """Return moments of one rank; those of rank 0 have groups in two of the classes, those of rank 1 have none."""
    rng = np.random.default_rng(rank)
    g, z = np.arange(64) // 5, np.repeat(["many", "few", "alone"], [30, 2, 32])
    X = rng.normal(size=(64, 6)) + rng.normal(size=(13, 6))[g] + 1e6 + rank
    grouped = ClassMoments.of(X[:32], z[:32], groups=None if rank else g[:32])
    return grouped + ClassMoments.of(X[32:], z[32:])
