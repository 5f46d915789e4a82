"""Parts: the moments of one shard in one file, named by everything that decides them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from repsurgery.errors import FileFormatError
from repsurgery.fields import check_fields
from repsurgery.files import Contents, built_from, digest_of, read_file, write_file
from repsurgery.moments import ClassMoments
from repsurgery.moments.by_class import KIND, from_contents, to_contents
from repsurgery.scale.shards.counting import Counted, NonFinite
from repsurgery.scale.shards.shard import Extent

__all__ = ["Origin", "Receipt", "merge_parts", "part_name", "read_part", "read_receipt", "write_moments", "write_part"]

PREFIX = "part-"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where rows came from: a digest of their moments, which copies share, and their extent, which pieces share."""

    digest: str
    extent: Extent


@dataclass(frozen=True, slots=True)
class Receipt:
    """What is known of a counted shard without its moments.

    Attributes
    ----------
    shard : str
        Its name.
    identity : str
        A digest of everything that decides its moments; the part is named after it.
    rows : int
        Rows read, those left out among them.
    counts : mapping of str to int
        Rows counted, by class.
    non_finite : NonFinite
        Rows left out.
    extent : Extent
        Which rows of which place.
    digest : str
        Of the moments: two shards with the same digest hold the same rows.
    kept : bool
        Whether the part was there already.
    mended : bool
        Whether a damaged part was there and had to be counted anew.
    """

    shard: str
    identity: str
    rows: int
    counts: Mapping[str, int]
    non_finite: NonFinite
    extent: Extent
    digest: str
    kept: bool = False
    mended: bool = False

    @property
    def part(self) -> str:
        """The name of the part's file."""
        return part_name(self.identity)

    @property
    def origin(self) -> Origin:
        """What a file of moments keeps of this shard."""
        return Origin(self.digest, self.extent)


def part_name(identity: str) -> str:
    """Return the file name of the part of a shard."""
    return f"{PREFIX}{identity[:32]}.safetensors"


def write_part(folder: Path, counted: Counted, *, shard: str, identity: str, extent: Extent) -> Receipt:
    """Write the moments of a shard, with its receipt in the header; the file is there whole or not at all."""
    held = to_contents(counted.moments)
    receipt = Receipt(
        shard=shard,
        identity=identity,
        rows=counted.rows,
        counts={str(label): m.count for label, m in counted.moments.items()},
        non_finite=counted.non_finite,
        extent=extent,
        digest=digest_of(held.arrays, {"classes": held.header["classes"]}),
    )
    header = {**held.header, "receipt": asdict(receipt), "shards": [_entry(receipt.origin)]}
    write_file(folder / receipt.part, Contents(KIND, header, held.arrays))
    return receipt


def read_receipt(folder: Path, identity: str) -> Receipt | None:
    """Return the receipt of a finished part after checking the whole file; None where there is none.

    Raises
    ------
    FileFormatError
        The part is damaged, or not that of this shard.
    """
    path = folder / part_name(identity)
    if not path.is_file():
        return None
    contents = read_file(path, kind=KIND)
    from_contents(contents)
    with built_from("the receipt of a shard"):
        facts = dict(contents.header["receipt"])
        bad = {**facts["non_finite"], "first": tuple(facts["non_finite"]["first"])}
        check_fields(NonFinite, bad)
        facts["non_finite"] = NonFinite(**bad)
        facts["extent"] = _extent(facts["extent"])
        check_fields(Receipt, facts)
        receipt = Receipt(**{**facts, "kept": True})
    if receipt.identity != identity:
        raise FileFormatError(f"{path} is the part of another shard.")
    return receipt


def read_part(path: Path) -> tuple[ClassMoments, list[Origin]]:
    """Return moments from a file and the origins of their rows, as far as it tells."""
    contents = read_file(path, kind=KIND)
    with built_from("a list of the shards it holds"):
        origins = [_origin(*entry) for entry in contents.header.get("shards", [])]
    return from_contents(contents), origins


def merge_parts(paths: Sequence[Path]) -> ClassMoments:
    """Return the sum of the moments in files, added in the given order."""
    return reduce(add, (ClassMoments.load(path) for path in paths))


def write_moments(path: Path, moments: ClassMoments, origins: Sequence[Origin]) -> None:
    """Write moments as ``ClassMoments.save`` does, with the origins of their rows."""
    held = to_contents(moments)
    write_file(path, Contents(KIND, {**held.header, "shards": list(map(_entry, origins))}, held.arrays))


def _extent(facts: Mapping[str, Any]) -> Extent:
    check_fields(Extent, facts)
    return Extent(**facts)


def _origin(digest: str, place: str, start: int, stop: int | None) -> Origin:
    check_fields(Origin, {"digest": digest})
    return Origin(digest, _extent({"place": place, "start": start, "stop": stop}))


def _entry(origin: Origin) -> list[str | int | None]:
    return [origin.digest, origin.extent.place, origin.extent.start, origin.extent.stop]
