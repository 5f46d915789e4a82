"""What workers run: count one shard, or add up a few parts. Both can be run any number of times."""

import errno
from dataclasses import dataclass, replace
from pathlib import Path

from threadpoolctl import threadpool_limits

from repsurgery.errors import DataError, FileFormatError
from repsurgery.scale.engines.base import Failure
from repsurgery.scale.reduce.parts import Receipt, merge_parts, read_receipt, write_part
from repsurgery.scale.shards.counting import count_shard
from repsurgery.scale.shards.shard import Shard, identity_of

__all__ = ["CountJob", "MergeJob", "count", "full_disk", "merge"]


@dataclass(frozen=True, slots=True)
class CountJob:
    """One shard, and the folder its part belongs into."""

    shard: Shard
    identity: str
    folder: Path
    batch_rows: int | None
    skip_non_finite: bool


@dataclass(frozen=True, slots=True)
class MergeJob:
    """Parts to add up in this order, and the file of their sum."""

    parts: tuple[Path, ...]
    out: Path


def count(job: CountJob) -> Receipt | Failure:
    """Write the part of a shard unless it is there already and whole; never raise."""
    try:
        with threadpool_limits(limits=1):
            return _count(job)
    except OSError as error:
        return _failure(job.shard.name, error)
    except MemoryError:
        return Failure(f"{job.shard.name}: the memory did not suffice; lower batch_rows.")
    except Exception as error:
        # readers of a dozen formats raise whatever they like, and none of it may stop the other shards
        return Failure(_with_name(job.shard.name, str(error) or type(error).__name__))


def _count(job: CountJob) -> Receipt:
    try:
        found = read_receipt(job.folder, job.identity)
        mended = False
    except FileFormatError:
        found, mended = None, True
    if found is not None:
        return found
    _require_unchanged(job)
    counted = count_shard(job.shard, batch_rows=job.batch_rows, skip_non_finite=job.skip_non_finite)
    _require_unchanged(job)
    extent = job.shard.extent()
    receipt = write_part(job.folder, counted, shard=job.shard.name, identity=job.identity, extent=extent)
    return replace(receipt, mended=mended)


def _require_unchanged(job: CountJob) -> None:
    if identity_of(job.shard, skip_non_finite=job.skip_non_finite) != job.identity:
        raise DataError("it changed while it was read. Run again when nobody writes to it.")


def merge(job: MergeJob) -> Path | Failure:
    """Write the sum of a few parts; never raise."""
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
    """Whether an error says that nothing more can be written here."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def _with_name(name: str, message: str) -> str:
    return message if message.startswith(name) else f"{name}: {message}"
