"""Parts: the moments of one shard in one file, whose name identifies the shard and every option that matters."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

from repsurgery.errors import FileFormatError
from repsurgery.fields import check_fields
from repsurgery.files import built_from, digest_of, read_file, write_file
from repsurgery.moments import ClassMoments
from repsurgery.moments.by_class import KIND, from_contents, to_contents
from repsurgery.moments.ledger import Part
from repsurgery.scale.shards.counting import Counted, NonFinite
from repsurgery.scale.shards.shard import Extent

__all__ = [
    "Origin",
    "Receipt",
    "merge_parts",
    "part_name",
    "read_part",
    "read_receipt",
    "restamp",
    "write_moments",
    "write_part",
]

PREFIX = "part-"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where rows came from: a digest of their moments, equal for copies, and their extent, which shows overlaps."""

    digest: str
    extent: Extent


@dataclass(frozen=True, slots=True)
class Receipt:
    """Facts about a shard whose moments were computed.

    Attributes
    ----------
    shard : str
        Its name.
    identity : str
        A digest of everything that its moments depend on; the name of the part contains it.
    rows : int
        Rows read, including those left out.
    counts : mapping of str to int
        Rows counted, by class.
    non_finite : NonFinite
        Rows left out.
    extent : Extent
        Which rows of which file or data set.
    digest : str
        Digest of the moments: two shards with the same digest hold the same rows.
    ledger : mapping of str to Part
        The part that the shard is in the ledger of each class; empty in receipts of version 0.1.
    content : str
        Digest of the rows and labels that were read; "" in receipts of version 0.1.
    stamp : tuple of int
        `Shard.stamp` when they were read.
    kept : bool
        Whether an earlier run had finished the part.
    mended : bool
        Whether the part of an earlier run was damaged, so that the shard was counted anew.
    """

    shard: str
    identity: str
    rows: int
    counts: Mapping[str, int]
    non_finite: NonFinite
    extent: Extent
    digest: str
    ledger: Mapping[str, Part] = field(default_factory=dict)
    content: str = ""
    stamp: tuple[int, ...] = ()
    kept: bool = False
    mended: bool = False

    @property
    def part(self) -> str:
        """The name of the part's file."""
        return part_name(self.identity)

    @property
    def origin(self) -> Origin:
        """What a file of moments states about this shard."""
        return Origin(self.digest, self.extent)


def part_name(identity: str) -> str:
    """Return the file name of the part of a shard."""
    return f"{PREFIX}{identity[:32]}.safetensors"


def write_part(
    folder: Path, counted: Counted, *, shard: str, identity: str, extent: Extent, stamp: tuple[int, ...] = ()
) -> Receipt:
    """Write the moments of a shard atomically, with its receipt in the header."""
    contents = to_contents(counted.moments)
    receipt = Receipt(
        shard=shard,
        identity=identity,
        rows=counted.rows,
        counts={str(label): m.count for label, m in counted.moments.items()},
        non_finite=counted.non_finite,
        extent=extent,
        digest=digest_of(contents.arrays, {"classes": contents.header["classes"]}),
        ledger={str(label): m.ledger.parts[0] for label, m in counted.moments.items() if m.ledger is not None},
        content=counted.content,
        stamp=stamp,
    )
    header = {**contents.header, "receipt": asdict(receipt), "shards": [_entry(receipt.origin)]}
    write_file(folder / receipt.part, replace(contents, header=header))
    return receipt


def read_receipt(path: Path, identity: str) -> Receipt:
    """Return the receipt of a finished part after checking the whole file.

    Raises
    ------
    FileFormatError
        The part is damaged, or belongs to another shard.
    """
    contents = read_file(path, kind=KIND)
    from_contents(contents)
    with built_from("the receipt of a shard"):
        facts = dict(contents.header["receipt"])
        non_finite = {**facts["non_finite"], "first": tuple(facts["non_finite"]["first"])}
        check_fields(NonFinite, non_finite)
        facts["non_finite"] = NonFinite(**non_finite)
        facts["extent"] = _extent(facts["extent"])
        facts["ledger"] = {label: Part(**part) for label, part in facts.get("ledger", {}).items()}
        facts["stamp"] = tuple(facts.get("stamp", ()))
        check_fields(Receipt, facts)
        receipt = Receipt(**{**facts, "kept": True})
    if receipt.identity != identity:
        raise FileFormatError(f"{path} is the part of another shard. Remove it; its own shard is counted again.")
    return receipt


def restamp(path: Path, receipt: Receipt) -> None:
    """Write the stamp of ``receipt`` into its part, so that its rows need not be compared again."""
    contents = read_file(path, kind=KIND)
    stated = {**contents.header["receipt"], "stamp": receipt.stamp}
    write_file(path, replace(contents, header={**contents.header, "receipt": stated}))


def read_part(path: Path) -> tuple[ClassMoments, list[Origin]]:
    """Return the moments in a file and the origins of their rows, as far as the file states them."""
    contents = read_file(path, kind=KIND)
    with built_from("a list of the shards it holds"):
        origins = [_origin(*entry) for entry in contents.header.get("shards", [])]
    return from_contents(contents), origins


def merge_parts(paths: Sequence[Path]) -> ClassMoments:
    """Return the sum of the moments in files, added in the given order."""
    return reduce(ClassMoments.merge, (ClassMoments.load(path) for path in paths))


def write_moments(path: Path, moments: ClassMoments, origins: Sequence[Origin]) -> None:
    """Write moments in the format of ``ClassMoments.save``, with the origins of their rows."""
    contents = to_contents(moments)
    write_file(path, replace(contents, header={**contents.header, "shards": list(map(_entry, origins))}))


def _extent(facts: Mapping[str, Any]) -> Extent:
    check_fields(Extent, facts)
    return Extent(**facts)


def _origin(digest: str, place: str, start: int, stop: int | None) -> Origin:
    check_fields(Origin, {"digest": digest})
    return Origin(digest, _extent({"place": place, "start": start, "stop": stop}))


def _entry(origin: Origin) -> list[str | int | None]:
    return [origin.digest, origin.extent.place, origin.extent.start, origin.extent.stop]
