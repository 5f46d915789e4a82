"""`measure_rates`: the rates of one core of this machine, measured in a few seconds."""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from statistics import median

import numpy as np
from scipy.linalg import blas
from threadpoolctl import threadpool_limits

from repsurgery.arrays import Matrix, Rows, check_labels, check_rows
from repsurgery.errors import ParameterError
from repsurgery.moments import ClassMoments, Moments
from repsurgery.moments.accumulate import about_mean
from repsurgery.moments.stream import block_rows
from repsurgery.scale.cost import DEFAULT_RATES, Rates, Storage
from repsurgery.scale.reduce.parts import read_part, write_part
from repsurgery.scale.shards.counting import BATCH_BYTES, Counted, NonFinite, non_finite_rows
from repsurgery.scale.shards.shard import Extent

__all__ = ["measure_rates"]

FILE_BYTES = 8 * BATCH_BYTES
PART_WIDTH = 1024
"""Moments of larger widths are written at the same rate."""

Clock = Callable[[], float]


def measure_rates(
    width: int,
    *,
    folder: str | os.PathLike[str],
    storage: Storage = "float32",
    repeats: int = 5,
    clock: Clock = time.perf_counter,
) -> Rates:
    """Return the rates of one core at this width; the network rate is the default.

    Parameters
    ----------
    width : int
    folder : path
        The folder of the rows, or another one on the same disk. Files of up to 64 MiB are written there, read and
        removed. They are dropped from the page cache before they are read, where the system allows it.
    storage : {"float16", "float32", "float64"}
    repeats : int
        The number of measurements, of which the median is taken.
    clock : callable
        Wall time by default. `time.process_time` excludes other processes and the time spent waiting for the disk.
    """
    if not Path(folder).is_dir():
        raise ParameterError(f"There is no folder {folder} to measure in. Name the folder of the rows.")

    def typical(rate: Callable[[], float]) -> float:
        return median(rate() for _ in range(repeats))

    rng = np.random.default_rng(0)
    X = rng.standard_normal((block_rows(width), width), dtype=np.float32).astype(storage)
    with threadpool_limits(limits=1), tempfile.TemporaryDirectory(dir=folder) as temporary:
        root = rng.standard_normal((min(width, PART_WIDTH),) * 2)
        S = root @ root.T + len(root) * np.eye(len(root))  # positive definite, as a valid part must be
        write, load = zip(*(_part_rates(Path(temporary), S, clock) for _ in range(repeats)), strict=True)
        return replace(
            DEFAULT_RATES,
            multiply=typical(lambda: _multiply(X, clock)),
            handle=typical(lambda: _handle(X, clock)),
            read=typical(lambda: _read(Path(temporary), clock)),
            write=median(write),
            load=median(load),
        )


def _multiply(X: Rows, clock: Clock) -> float:
    Z, S = X.astype(np.float64), np.zeros((X.shape[1], X.shape[1]), order="F")
    start = clock()
    blas.dsyrk(1.0, Z.T, beta=1.0, c=S, lower=0, overwrite_c=1)
    return float(X.size * X.shape[1]) / _since(start, clock)


def _handle(X: Rows, clock: Clock) -> float:
    """Measure what `count_shard` does to a block besides reading and multiplying."""
    z = np.arange(len(X)) % 2
    waiting, Z = np.empty_like(X), np.empty(X.shape)
    pivot, ones = np.zeros(X.shape[1]), np.ones(len(X))
    start = clock()
    sha256(X.data)
    non_finite_rows(check_rows(X))
    _, codes = check_labels(z, len(X))
    half = len(X) - len(X) // 2
    np.take(X, np.flatnonzero(codes == 0), axis=0, out=waiting[:half], mode="clip")
    np.take(X, np.flatnonzero(codes == 1), axis=0, out=waiting[half:], mode="clip")
    np.subtract(waiting, pivot, out=Z)
    ones @ Z
    return X.size / _since(start, clock)


def _read(folder: Path, clock: Clock) -> float:
    path = folder / "rows"
    with path.open("wb") as stream:
        for _ in range(FILE_BYTES // BATCH_BYTES):
            stream.write(os.urandom(BATCH_BYTES))
        stream.flush()
        os.fsync(stream.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    start = clock()
    with path.open("rb") as stream:
        while len(np.fromfile(stream, np.uint8, BATCH_BYTES)):
            pass
    return FILE_BYTES / _since(start, clock)


def _part_rates(folder: Path, S: Matrix, clock: Clock) -> tuple[float, float]:
    sums = [S.copy(order="F"), S.copy(order="F")]
    d = len(S)
    start = clock()
    centred = [about_mean(np.zeros(d), np.ones(d), d + 1.0, each) for each in sums]
    moments = ClassMoments({i: Moments(d + 1, d + 1.0, mean, S, None) for i, ((mean, _), S) in enumerate(centred)})
    receipt = write_part(
        folder, Counted(moments, d, NonFinite()), shard="probe", identity="probe", extent=Extent("probe")
    )
    write = 2 * S.nbytes / _since(start, clock)
    start = clock()
    moments + read_part(folder / receipt.part)[0]
    return write, 2 * S.nbytes / _since(start, clock)


def _since(start: float, clock: Clock) -> float:
    return max(clock() - start, 1e-9)
