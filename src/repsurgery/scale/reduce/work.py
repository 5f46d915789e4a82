"""The tasks of workers: count one shard, or add up a few parts. Each can be repeated without harm."""

import errno
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from threadpoolctl import threadpool_limits

from repsurgery.checkpoint import recall
from repsurgery.errors import DataError
from repsurgery.scale.engines.base import Failure
from repsurgery.scale.reduce.parts import Receipt, merge_parts, part_name, read_receipt, write_part
from repsurgery.scale.shards.counting import count_shard
from repsurgery.scale.shards.shard import Shard, identity_of

__all__ = ["CountJob", "MergeJob", "count", "full_disk", "merge"]


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
    try:
        with threadpool_limits(limits=1):
            return _count(job)
    except OSError as error:
        return _failure(job.shard.name, error)
    except MemoryError:
        return Failure(f"{job.shard.name}: there was not enough memory; lower batch_rows.")
    except Exception as error:
        # readers of a dozen formats raise errors of any type, and none of them may stop the other shards
        return Failure(_with_name(job.shard.name, str(error) or type(error).__name__))


def _count(job: CountJob) -> Receipt:
    receipt, damage = recall(job.folder / part_name(job.identity), partial(read_receipt, identity=job.identity))
    if receipt is not None:
        return receipt
    _require_unchanged(job)
    counted = count_shard(job.shard, batch_rows=job.batch_rows, skip_non_finite=job.skip_non_finite)
    _require_unchanged(job)
    extent = job.shard.extent()
    receipt = write_part(job.folder, counted, shard=job.shard.name, identity=job.identity, extent=extent)
    return replace(receipt, mended=damage is not None)


def _require_unchanged(job: CountJob) -> None:
    if identity_of(job.shard, skip_non_finite=job.skip_non_finite) != job.identity:
        raise DataError("it changed while it was read. Run again when no other process writes to it.")


def merge(job: MergeJob) -> Path | Failure:
    """Write the sum of a few parts; return every error as a `Failure`."""
    try:
        with threadpool_limits(limits=1):
            merge_parts(job.parts).save(job.out)
    except OSError as error:
        return _failure(job.out.name, error)
    except Exception as error:
        return Failure(_with_name(job.out.name, str(error)))
    return job.out


def _failure(name: str, error: OSError) -> Failure:
    if full_disk(error):
        return Failure(f"{name}: its part could not be written ({error.strerror})", hopeless=True)
    return Failure(_with_name(name, str(error)))


def full_disk(error: OSError) -> bool:
    """Return whether an error means that nothing more can be written to this disk."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def _with_name(name: str, message: str) -> str:
    return message if message.startswith(name) else f"{name}: {message}"
