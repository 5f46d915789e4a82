"""`check_shards`: read and compare all headers before the first row is read."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from repsurgery.errors import DamagedFileError, DataError, LabelError, ShapeError, SurgeryError
from repsurgery.scale.shards.shard import Schema, Shard

__all__ = ["Checked", "check_shards"]


@dataclass(frozen=True, slots=True)
class Checked:
    """Consistent shards with their schemas, and an error message for each shard that cannot be read, by name."""

    shards: tuple[Shard, ...]
    schemas: tuple[Schema, ...]
    unreadable: dict[str, str]


def check_shards(shards: Sequence[Shard]) -> Checked:
    """Return the shards that can be read; raise where two of them differ in width, features, dtype or kind of label.

    A damaged file is reported by name, and the other shards are still processed. Different widths raise an error,
    because they mean that the wrong files were listed. Named features, such as the columns of a table, must have the
    same names in the same order in all shards.

    Guarantees
    ----------
    Columns in another order or with other names are refused (test_columns_in_another_order_are_refused).
    """
    if not shards:
        raise DataError("There are no shards: give at least one.")
    good: list[tuple[Shard, Schema]] = []
    unreadable: dict[str, str] = {}
    for shard in shards:
        try:
            good.append((shard, shard.schema()))
        except DamagedFileError as error:
            unreadable[shard.name] = str(error)
        except SurgeryError:
            raise
        except Exception as error:
            # the readers of the formats raise all kinds of exceptions for a damaged file
            unreadable[shard.name] = f"{shard.name} cannot be read ({error!r}). Write it again."
    duplicates = [name for name, count in Counter(shard.name for shard in shards).items() if count > 1]
    if duplicates:
        raise DataError(f"{duplicates[0]} is among the shards twice; it would be counted twice. List it once.")
    named = next((pair for pair in good if pair[1].features is not None), None)
    for shard, schema in good:
        _require_same_schema(good[0], (shard, schema))
        if named is not None and schema.features is not None:
            _require_same_features(named, (shard, schema))
        if schema.rows == 0:
            raise DataError(f"{shard.name} is empty: it has no rows. Leave it out, or write it again.")
    return Checked(tuple(s for s, _ in good), tuple(schema for _, schema in good), unreadable)


def _require_same_schema(first: tuple[Shard, Schema], other: tuple[Shard, Schema]) -> None:
    (a, have), (b, got) = first, other
    both = f"{a.name} and {b.name}"
    if have.width != got.width:
        raise ShapeError(f"{both} differ in width: {have.width} and {got.width} features. Use one site for all.")
    if have.dtype != got.dtype:
        raise DataError(f"{both} differ in dtype: {have.dtype} and {got.dtype}. Write all shards in one dtype.")
    if have.labels != got.labels:
        raise LabelError(f"{both} differ in their labels: {have.labels} and {got.labels}. Use one kind for all.")


def _require_same_features(first: tuple[Shard, Schema], other: tuple[Shard, Schema]) -> None:
    (a, have), (b, got) = first, other
    if have.features == got.features:
        return
    old, new = have.features or (), got.features or ()
    i, x, y = next((i, x, y) for i, (x, y) in enumerate(zip_longest(old, new)) if x != y)
    remedy = "Give their order" if sorted(old) == sorted(new) else "Name those that all of them have"
    raise DataError(
        f"{a.name} and {b.name} differ in their features: number {i} is '{x}' and '{y}'. "
        f"{remedy} with --column, or write all shards alike."
    )
