"""`reduce_shards`: the moments of many shards, each counted exactly once, whichever process dies meanwhile."""

import json
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from repsurgery.checkpoint import atomic_file
from repsurgery.errors import (
    CacheWarning,
    DataError,
    DuplicateWarning,
    FileFormatError,
    IdentityWarning,
    LedgerError,
    NonFiniteWarning,
    ParameterError,
    ShardError,
)
from repsurgery.moments import ClassMoments
from repsurgery.scale.engines.base import Engine, Failure
from repsurgery.scale.engines.local import LocalEngine
from repsurgery.scale.reduce.parts import PREFIX, Receipt, merge_parts, part_name, write_moments
from repsurgery.scale.reduce.work import CountJob, MergeJob, count, full_disk, merge
from repsurgery.scale.shards.checks import check_shards
from repsurgery.scale.shards.counting import check_batch_rows
from repsurgery.scale.shards.shard import Shard, identity_of

__all__ = ["WORK_FILES", "Reduced", "reduce_shards"]

ARITY = 8
"""One worker adds up this many parts. The order of additions depends on the names of the shards alone."""
SHOWN = 10
SUMS = "sums-"
MANIFEST = "manifest.json"
STALE_SECONDS = 3600.0
WORK_FILES = (f"{PREFIX}*", f".{PREFIX}*", f"{SUMS}*", MANIFEST)
"""Patterns of the names that are written, replaced or removed in a work folder; no input may match one of them."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """The moments of all shards, and the receipts of the shards, sorted by name."""

    moments: ClassMoments
    receipts: tuple[Receipt, ...]

    @property
    def rows(self) -> int:
        """Rows read, including those left out."""
        return sum(receipt.rows for receipt in self.receipts)

    @property
    def non_finite(self) -> int:
        """Rows left out."""
        return sum(receipt.non_finite.count for receipt in self.receipts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the moments with the origins of their rows, so that `merge_files` detects rows that occur twice."""
        try:
            write_moments(Path(path), self.moments, [receipt.origin for receipt in self.receipts if receipt.counts])
        except OSError as error:
            if not full_disk(error):
                raise
            raise OSError(
                error.errno, f"{path} could not be written ({error.strerror}); every shard is kept"
            ) from error


def reduce_shards(
    shards: Sequence[Shard],
    *,
    work_dir: str | os.PathLike[str],
    engine: Engine | None = None,
    batch_rows: int | None = None,
    skip_non_finite: bool = False,
    announce: Callable[[Receipt | None, int], None] = lambda receipt, total: None,
) -> Reduced:
    """Return the moments of all rows of all shards.

    Every shard becomes one part: a file of its moments in ``work_dir``, whose name contains a digest of everything that
    they depend on. A finished part is never counted again; a damaged one is. The workers write the parts, so all of
    them must have access to ``work_dir`` and to the shards.

    Parameters
    ----------
    shards : sequence of Shard
        See `find_shards`.
    work_dir : path
        Created if necessary, and kept: a later call with more shards counts only the new ones. The part of a shard
        without a stable identity, such as a stream without a key, is removed at the end, with a warning.
    engine : Engine or None
        None: a `LocalEngine`.
    batch_rows, skip_non_finite
        See `count_shard`.
    announce : callable
        Called with the receipt of every shard (None if it failed) and the number of shards.

    Raises
    ------
    ShapeError, DataError, LabelError
        Shards that do not belong together; raised before any work.
    ShardError
        Shards that could not be counted, by name; raised after all others were counted.

    Guarantees
    ----------
    Equal to the moments of one process whatever the engine, bit for bit (test_engines_agree_to_the_bit).
    The order of the shards changes no bit (test_the_order_of_the_shards_changes_no_bit).
    A worker that dies is replaced and its shard counted once (test_a_killed_worker_costs_nothing).
    If the driver dies, only unfinished shards are counted again (test_a_killed_driver_goes_on_where_it_stopped).
    """
    check_batch_rows(batch_rows)
    checked = check_shards(shards)
    folder = Path(work_dir)
    _create(folder)
    _sweep(folder)
    ordered = sorted(checked.shards, key=lambda shard: shard.name)
    identities = [identity_of(shard, skip_non_finite=skip_non_finite) for shard in ordered]
    jobs = [
        CountJob(shard, identity, folder.resolve(), batch_rows, skip_non_finite)
        for shard, identity in zip(ordered, identities, strict=True)
    ]
    failures = list(checked.unreadable.values())
    with _forgetting(jobs), engine or LocalEngine() as running:
        receipts = _count_all(running, jobs, failures, lambda receipt: announce(receipt, len(shards)))
        _write_manifest(folder, receipts, failures)
        if failures:
            raise _error(failures, len(shards), len(receipts), folder)
        moments = _merge_all(running, receipts, folder.resolve())
    if not moments:
        raise DataError(f"All {sum(receipt.rows for receipt in receipts)} rows hold NaN or infinity. Write them again.")
    _require_whole(moments, receipts)
    _warn(receipts)
    return Reduced(moments, tuple(receipts))


def _count_all(
    engine: Engine, jobs: list[CountJob], failures: list[str], announce: Callable[[Receipt | None], None]
) -> list[Receipt]:
    receipts: dict[int, Receipt] = {}
    for i, result in engine.map(count, jobs):
        if isinstance(result, Failure):
            failures.append(_named(result.message, jobs[i].shard.name))
            announce(None)
            if result.hopeless:
                break
        else:
            receipts[i] = result
            announce(result)
    return [receipts[i] for i in sorted(receipts)]


def _merge_all(engine: Engine, receipts: list[Receipt], folder: Path) -> ClassMoments:
    parts = [folder / receipt.part for receipt in receipts]
    with _sums(folder) as sums:
        while len(parts) > ARITY:
            groups = [tuple(parts[i : i + ARITY]) for i in range(0, len(parts), ARITY)]
            jobs = [MergeJob(group, sums / f"{len(parts)}-{i}.safetensors") for i, group in enumerate(groups)]
            for _, result in engine.map(merge, jobs):
                if isinstance(result, Failure):
                    raise ShardError(f"Adding up the parts failed: {result.message}. All parts are kept; run again.")
            parts = [job.out for job in jobs]
        return merge_parts(parts)


@contextmanager
def _forgetting(jobs: list[CountJob]) -> Iterator[None]:
    """Warn that the parts of shards without a stable identity are not kept, and remove them at the end."""
    unstable = [job for job in jobs if not job.shard.stable]
    if unstable:
        warnings.warn(
            f"{len(unstable)} of {len(jobs)} shards, {unstable[0].shard.name} the first, have no identity that holds "
            "beyond this call, so they are counted and not kept. Give the stream a key (dataset_shards(..., key=...)), "
            "or save it to disk and name the folder.",
            IdentityWarning,
            stacklevel=4,
        )
    try:
        yield
    finally:
        for job in unstable:
            (job.folder / part_name(job.identity)).unlink(missing_ok=True)


@contextmanager
def _sums(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder for sums, to which all workers can write."""
    try:
        sums = TemporaryDirectory(dir=folder, prefix=SUMS)
    except OSError as error:
        raise ShardError(
            f"The parts cannot be added up: {folder} cannot be written to ({error.strerror}). All parts are kept; "
            "correct this and run again."
        ) from error
    with sums as name:
        yield Path(name)


def _create(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ParameterError(f"work_dir is {folder}, where a file is in the way; name a folder.") from error


def _sweep(folder: Path) -> None:
    """Remove drafts of killed processes; recent ones may belong to a process that still runs."""
    for leftover in [*folder.glob(f".{PREFIX}*"), *folder.glob(f"{SUMS}*")]:
        with suppress(OSError):
            if time.time() - leftover.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()


def _write_manifest(folder: Path, receipts: list[Receipt], failures: list[str]) -> None:
    entries = [{"part": receipt.part, **asdict(receipt)} for receipt in receipts]
    text = json.dumps({"shards": entries, "failures": failures}, indent=1, ensure_ascii=False)
    try:
        with atomic_file(folder / MANIFEST) as stream:
            # a file name that is not valid UTF-8 is written with escapes, which JSON reads back
            stream.write(f"{text}\n".encode(errors="backslashreplace"))
    except OSError as error:
        if not failures:  # these are worse, and are raised anyway
            text = f"{folder / MANIFEST} could not be written ({error.strerror}); the parts themselves are complete."
            warnings.warn(text, CacheWarning, stacklevel=3)


def _require_whole(moments: ClassMoments, receipts: list[Receipt]) -> None:
    counted = [sum(receipt.counts.values()) for receipt in receipts]
    finite = [receipt.rows - receipt.non_finite.count for receipt in receipts]
    if sum(m.count for m in moments.values()) != sum(counted) or counted != finite:
        raise FileFormatError("The parts do not add up to the rows that were counted. Remove the work folder.")
    if any(receipt.counts and not receipt.ledger for receipt in receipts):
        return  # a part of version 0.1 has no ledger
    for label, m in moments.items():
        plan = {r.shard: r.ledger[str(label)] for r in receipts if str(label) in r.ledger}
        if m.ledger is not None:
            try:
                m.ledger.require(plan)
            except LedgerError as error:
                raise LedgerError(f"class {label!r}: {error} Remove the work folder and run again.") from error


def _named(message: str, name: str) -> str:
    return message if name in message else f"{name}: {message}"


def _error(failures: list[str], total: int, done: int, folder: Path) -> ShardError:
    shown = "; ".join(failure.rstrip(".") for failure in failures[:SHOWN])
    more = f"; and {len(failures) - SHOWN} more, listed in {folder / MANIFEST}" if len(failures) > SHOWN else ""
    return ShardError(
        f"{len(failures)} of {total} shards could not be counted: {shown}{more}. "
        f"The {done} others are kept in {folder}; correct this and run again."
    )


def _warn(receipts: list[Receipt]) -> None:
    first: dict[str, Receipt] = {}
    for receipt in receipts:
        if receipt.mended:
            warnings.warn(f"The part of {receipt.shard} was damaged; it was counted anew.", CacheWarning, stacklevel=3)
        if receipt.non_finite.count:
            text = f"{receipt.shard}: {receipt.non_finite} left out"
            warnings.warn(text, NonFiniteWarning, stacklevel=3)
        other = first.setdefault(receipt.digest, receipt)
        if other is not receipt and receipt.counts:
            text = f"{other.shard} and {receipt.shard} hold the same rows; both are counted."
            warnings.warn(text, DuplicateWarning, stacklevel=3)
