"""`plan`: an estimate of the cost of computing moments, by arithmetic alone."""

from dataclasses import dataclass
from typing import Literal, get_args

from repsurgery.arrays import check_integer
from repsurgery.errors import ParameterError
from repsurgery.moments.stream import block_rows
from repsurgery.scale.reduce.shards import ARITY
from repsurgery.scale.shards.counting import BATCH_BYTES

__all__ = ["DEFAULT_RATES", "Plan", "Rates", "Storage", "plan"]

Storage = Literal["float16", "float32", "float64"]
ITEM = {"float16": 2, "float32": 4, "float64": 8}


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of one worker on one core, per second.

    Attributes
    ----------
    multiply : float
        Floating point operations of the float64 block product (syrk).
    handle : float
        Numbers checked, sorted by class, widened to float64 and centred.
    read : float
        Bytes of rows read from their storage.
    write, load : float
        Bytes of moments written to a part, and loaded from a part and added; both include the digest.
    network : float
        Bytes between a worker and the work folder, or the other ranks.
    """

    multiply: float
    handle: float
    read: float
    write: float
    load: float
    network: float

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ParameterError(f"The rate {name!r} is {getattr(self, name)!r}; it must be above zero.")


DEFAULT_RATES = Rates(multiply=30e9, handle=250e6, read=1e9, write=150e6, load=350e6, network=1.25e9)
"""A server core with AVX2, a disk of 1 GB/s per worker, and a network of 10 Gbit/s; docs/planning.md explains them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The estimated cost of one run; seconds and bytes per worker are those of the busiest worker.

    Attributes
    ----------
    rows, width, classes, workers, shards : int
    storage : {"float16", "float32", "float64"}
    data_bytes : int
        Size of all rows.
    flops : int
        Operations of all workers together, n d².
    part_bytes, work_bytes : int
        Size of one part, and of the work folder.
    memory_bytes : int
        Peak memory of a worker, without Python and its libraries.
    network_bytes : int
        Parts that a worker writes and reads, without rows; 0 for one worker.
    all_reduce_bytes : int
        Bytes that a rank sends instead of parts, under ``torchrun``.
    read_seconds, handle_seconds, multiply_seconds, write_seconds, merge_seconds, network_seconds : float
    """

    rows: int
    width: int
    classes: int
    workers: int
    shards: int
    storage: Storage
    data_bytes: int
    flops: int
    part_bytes: int
    work_bytes: int
    memory_bytes: int
    network_bytes: int
    all_reduce_bytes: int
    read_seconds: float
    handle_seconds: float
    multiply_seconds: float
    write_seconds: float
    merge_seconds: float
    network_seconds: float

    @property
    def seconds(self) -> float:
        """Total time; the steps are assumed not to overlap."""
        count = self.read_seconds + self.handle_seconds + self.multiply_seconds + self.write_seconds
        return count + self.merge_seconds + self.network_seconds


def plan(
    rows: int,
    width: int,
    classes: int = 2,
    workers: int = 1,
    *,
    shards: int = 256,
    storage: Storage = "float32",
    rates: Rates = DEFAULT_RATES,
) -> Plan:
    """Return the estimated cost of `reduce_shards`, by the formulas in docs/planning.md.

    Parameters
    ----------
    rows, width, classes, workers : int
    shards : int
        Number of shards, assumed of equal length, with at least ``width`` rows of each class.
    storage : {"float16", "float32", "float64"}
        Number format of the rows on disk.
    rates : Rates
        See `measure_rates`.

    Guarantees
    ----------
    The result follows the formulas of that page (test_a_plan_by_hand).
    """
    counts = {"rows": rows, "width": width, "classes": classes, "workers": workers, "shards": shards}
    rows, width, classes, workers, shards = (check_integer(name, value) for name, value in counts.items())
    if shards > rows:
        raise ParameterError(f"{rows} rows cannot be split into {shards} shards; choose fewer shards.")
    if storage not in get_args(Storage):
        raise ParameterError(f"storage is {storage!r}; it must be one of {list(get_args(Storage))}.")
    item = ITEM[storage]
    part = classes * 8 * width**2
    turns = -(-shards // workers)
    mine = turns * rows / shards
    loaded, summed = _merging(shards, workers)
    moved = (turns + loaded + summed) * part if workers > 1 else 0
    return Plan(
        rows=rows,
        width=width,
        classes=classes,
        workers=workers,
        shards=shards,
        storage=storage,
        data_bytes=rows * width * item,
        flops=rows * width**2,
        part_bytes=part,
        work_bytes=shards * part,
        memory_bytes=_peak(width, classes, item),
        network_bytes=moved,
        all_reduce_bytes=2 * (workers - 1) * part // workers,
        read_seconds=mine * width * item / rates.read,
        handle_seconds=mine * width / rates.handle,
        multiply_seconds=mine * width**2 / rates.multiply,
        write_seconds=turns * part / rates.write,
        merge_seconds=loaded * part / rates.load + summed * part / rates.write,
        network_seconds=moved / rates.network,
    )


def _merging(shards: int, workers: int) -> tuple[int, int]:
    """Return the numbers of parts that the busiest worker loads and of sums that it writes until one sum is left."""
    loaded = summed = 0
    while shards > ARITY:
        groups = -(-shards // ARITY)
        turns = -(-groups // workers)
        loaded += min(turns * ARITY, shards)
        summed += turns
        shards = groups
    return loaded + shards, summed


def _peak(width: int, classes: int, item: int) -> int:
    square, block = 8 * width**2, block_rows(width)
    batch = BATCH_BYTES // (4 * width) * width * item
    waiting = block * -(-width // block) * width * item
    # this batch and the next, a block for centring, waiting rows and a sum per class, and a square for mirroring
    streaming = 2 * batch + 8 * block * width + classes * (waiting + square) + square
    # two parts, their sum, and two temporary squares
    merging = (3 * classes + 2) * square
    return max(streaming, merging)
