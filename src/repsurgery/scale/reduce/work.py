"""The tasks of workers: count one shard, or add up a few parts. Each can be repeated without harm."""

import errno
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from threadpoolctl import threadpool_limits

from repsurgery.checkpoint import recall
from repsurgery.errors import DataError
from repsurgery.scale.engines.base import Failure
from repsurgery.scale.reduce.parts import Receipt, merge_parts, part_name, read_receipt, restamp, write_part
from repsurgery.scale.shards.counting import content_of, count_shard
from repsurgery.scale.shards.shard import Shard, identity_of

__all__ = ["CountJob", "MergeJob", "count", "full_disk", "merge"]

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class CountJob:
    """One shard, and the folder for its part."""

    shard: Shard
    identity: str
    folder: Path
    batch_rows: int | None
    skip_non_finite: bool


@dataclass(frozen=True, slots=True)
class MergeJob:
    """Parts to add up in this order, and the file for their sum."""

    parts: tuple[Path, ...]
    out: Path


def count(job: CountJob) -> Receipt | Failure:
    """Write the part of a shard unless an earlier run has finished it; return every error as a `Failure`."""
    return _guarded(job.shard.name, lambda: _count(job))


def merge(job: MergeJob) -> Path | Failure:
    """Write the sum of a few parts; return every error as a `Failure`."""

    def add_up() -> Path:
        merge_parts(job.parts).save(job.out)
        return job.out

    return _guarded(job.out.name, add_up)


def _count(job: CountJob) -> Receipt:
    path, stamp = job.folder / part_name(job.identity), job.shard.stamp()
    receipt, damage = recall(path, partial(read_receipt, identity=job.identity))
    if receipt is not None and receipt.content:
        if receipt.stamp == stamp:
            return receipt
        # a copy that keeps the times of files (cp -p, rsync -t, tar) hides a change from size and time
        same = content_of(job.shard) == receipt.content
        _require_unchanged(job, stamp)
        if same:
            receipt = replace(receipt, stamp=stamp)
            restamp(path, receipt)
            return receipt
    _require_unchanged(job, stamp)
    counted = count_shard(job.shard, batch_rows=job.batch_rows, skip_non_finite=job.skip_non_finite)
    _require_unchanged(job, stamp)
    extent = job.shard.extent()
    receipt = write_part(job.folder, counted, shard=job.shard.name, identity=job.identity, extent=extent, stamp=stamp)
    return replace(receipt, mended=damage is not None)


def _require_unchanged(job: CountJob, stamp: tuple[int, ...]) -> None:
    unchanged = identity_of(job.shard, skip_non_finite=job.skip_non_finite) == job.identity
    if not unchanged or job.shard.stamp() != stamp:
        raise DataError("it changed while it was read. Run again when no other process writes to it.")


def _guarded(name: str, task: Callable[[], Result]) -> Result | Failure:
    try:
        with threadpool_limits(limits=1):
            return task()
    except MemoryError:
        message = "there was not enough memory; lower batch_rows."
    except Exception as error:
        # readers of a dozen formats raise errors of any type, and none of them may stop the other shards
        if isinstance(error, OSError) and full_disk(error):
            return Failure(f"{name}: its part could not be written ({error.strerror})", hopeless=True)
        message = str(error) or type(error).__name__
    return Failure(message if message.startswith(name) else f"{name}: {message}")


def full_disk(error: OSError) -> bool:
    """Return whether an error means that nothing more can be written to this disk."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
