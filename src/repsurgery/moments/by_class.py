"""`ClassMoments`: one `Moments` per concept label, the statistic every estimator is fitted from."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Label, Rows, Vector, check_groups, check_labels, check_rows, check_weights
from repsurgery.cards import Card, Shown, name_of
from repsurgery.errors import DataError, LabelError, LedgerError, ShapeError, SketchError, SurgeryError
from repsurgery.files import Contents, built_from, from_bytes, read_file, to_bytes, write_file
from repsurgery.moments.checks import Precision, require_scatter
from repsurgery.moments.combine import added, warn_of_repetition
from repsurgery.moments.groups import Groups
from repsurgery.moments.ledger import Ledger
from repsurgery.moments.moments import Moments
from repsurgery.moments.shown import class_moments_card
from repsurgery.moments.sketch import Sketch

__all__ = ["ClassMoments"]

KIND = "class-moments"
SINGLE = "moments"
_FORMS = ("dense", "factor")
_FACTS = ("count", "weight", "dtype", "precision")
_SKETCH_FACTS = ("count", "weight", "groups", "version")
_SKETCH_ARRAYS = ("mean", "residue", "squares", "bound")


@dataclass(frozen=True, slots=True, eq=False)
class ClassMoments(Shown, Mapping[Label, Moments]):
    """Moments of each class: a mapping from label to `Moments`, sorted by label.

    ``a + b`` merges, ``a - b`` removes rows that were added, ``update`` returns the sum with new rows.
    Nothing here is changed in place.

    Parameters
    ----------
    by_label : mapping of label to Moments

    Guarantees
    ----------
    The result does not depend on how rows were split, ordered or distributed over machines, beyond rounding
    (test_merging_classes_equals_fitting_at_once).
    Memory above the input is O(k d²) (benchmarks/memory.py).
    """

    by_label: Mapping[Label, Moments] = field(default_factory=dict)

    def __post_init__(self) -> None:
        widths = {m.dim for m in self.by_label.values()}
        if len(widths) > 1:
            raise ShapeError(f"Classes have different numbers of features: {sorted(widths)}. Use one site for all.")
        if self.by_label:
            labels = list(self.by_label)
            if len(check_labels(labels, len(labels), caller="ClassMoments")[0]) < len(labels):
                raise LabelError(f"Some of the labels {labels} are equal. Rename them.")
        ordered = dict(sorted(self.by_label.items()))
        object.__setattr__(self, "by_label", MappingProxyType(ordered))

    @classmethod
    def of(
        cls, X: Any, z: Any, *, sample_weight: Any = None, precision: Precision = "float64", groups: Any = None
    ) -> "ClassMoments":
        """Return the moments of rows ``X`` (n, d) by their labels ``z`` (n,).

        Parameters
        ----------
        X : (n, d) array-like
        z : (n,) labels
        sample_weight : (n,) array-like, or None
            A weight of 2 counts a row twice.
        precision : {"float64", "float32-products"}
        groups : (n,) labels, or None
            Rows with the same label are not independent, such as the tokens of one text. A group may span classes and
            counts as one group within each of them. It must lie within one call: `Moments` do not hold the labels, so
            that a group whose rows are added by two calls counts as two groups.
        """
        X = check_rows(X, caller="ClassMoments.of")
        labels, codes = check_labels(z, len(X), caller="ClassMoments.of")
        w = check_weights(sample_weight, len(X), caller="ClassMoments.of")
        return cls.of_codes(X, labels, codes, w, precision, check_groups(groups, len(X), caller="ClassMoments.of"))

    @classmethod
    def of_codes(
        cls,
        X: Rows,
        labels: list[Label],
        codes: NDArray[np.intp],
        w: Vector | None,
        precision: Precision,
        groups: NDArray[np.intp] | None = None,
    ) -> "ClassMoments":
        """Return the moments of checked rows whose label is ``labels[codes[i]]`` and whose group ``groups[i]``."""
        by_label = {
            label: Moments.of_rows(X, np.flatnonzero(codes == code), w, precision, groups)
            for code, label in enumerate(labels)
        }
        return cls({label: moments for label, moments in by_label.items() if moments.count})

    def update(
        self, X: Any, z: Any, *, sample_weight: Any = None, precision: Precision = "float64", groups: Any = None
    ) -> "ClassMoments":
        """Return these moments with new rows added; ``self`` does not change.

        A group must lie within one call: the same label in two calls stands for two groups.
        """
        return self + ClassMoments.of(X, z, sample_weight=sample_weight, precision=precision, groups=groups)

    def __getitem__(self, label: Label) -> Moments:
        try:
            return self.by_label[label]
        except KeyError:
            raise LabelError(f"There is no class {label!r}; the classes are {self.labels}.") from None

    def __contains__(self, label: object) -> bool:
        return label in self.by_label

    def __iter__(self) -> Iterator[Label]:
        return iter(self.by_label)

    def __len__(self) -> int:
        return len(self.by_label)

    @property
    def labels(self) -> list[Label]:
        """The classes, sorted."""
        return list(self.by_label)

    @property
    def dim(self) -> int:
        """The number of features d."""
        if not self.by_label:
            raise DataError("These moments hold no rows yet; add some with update(X, z).")
        return next(iter(self.by_label.values())).dim

    @property
    def weight(self) -> float:
        """The total weight of all classes."""
        return sum(m.weight for m in self.by_label.values())

    @property
    def total(self) -> Moments:
        """The moments of all rows, whatever their class; a group that spans classes counts once for each."""
        return reduce(added, self.by_label.values())

    def __add__(self, other: "ClassMoments") -> "ClassMoments":
        if not isinstance(other, ClassMoments):
            return NotImplemented
        for label, moments in other.by_label.items():
            if label in self.by_label:
                warn_of_repetition(self.by_label[label], moments, of=f" of class {label!r}")
        return self.merge(other)

    def merge(self, other: "ClassMoments") -> "ClassMoments":
        """Return the sum, without the warning of `+` where a part is repeated; the ledgers show it."""
        merged = dict(self.by_label)
        for label, moments in other.by_label.items():
            merged[label] = added(merged[label], moments) if label in merged else moments
        return ClassMoments(merged)

    def check_sketch(self) -> None:
        """Raise `SketchError` or `LedgerError`, with the class, where moments are not what was counted beside them."""
        for label, moments in self.by_label.items():
            try:
                moments.check_sketch()
            except (SketchError, LedgerError) as error:
                raise type(error)(f"class {label!r}: {error}") from error

    def __sub__(self, other: "ClassMoments") -> "ClassMoments":
        if not isinstance(other, ClassMoments):
            return NotImplemented
        remaining = dict(self.by_label)
        for label, moments in other.by_label.items():
            try:
                remaining[label] = self[label] - moments
            except SurgeryError as error:
                raise type(error)(f"class {label!r}: {error}") from error
        return ClassMoments({label: moments for label, moments in remaining.items() if moments.count})

    def _card(self) -> Card:
        return class_moments_card(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return ClassMoments, (dict(self.by_label),)

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the eigenvalues of the covariances of at most eight classes, and return the axes.

        Drawing needs ``pip install 'repsurgery[report]'``. ``ax`` are axes of matplotlib; None makes a new figure.
        """
        from repsurgery.pictures.spectrum import MOST_CURVES, draw_spectra

        shown = dict(list(self.items())[:MOST_CURVES])
        return draw_spectra(
            {name_of(label): m.spectrum() for label, m in shown.items()},
            title=self._card().title,
            ylabel="variance",
            others=len(self) - len(shown),
            ax=ax,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write these moments to one file: counts, means, scatters or factors, never rows."""
        write_file(path, to_contents(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "ClassMoments":
        """Read moments written by `save`, checking digest, shapes and values."""
        return from_contents(read_file(path, kind=KIND))

    def to_bytes(self) -> bytes:
        """Return the bytes that `save` would write, to send them instead."""
        return to_bytes(to_contents(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> "ClassMoments":
        """Return moments from `to_bytes`, checked as `load` checks a file."""
        return from_contents(from_bytes(data, kind=KIND))


def to_contents(moments: ClassMoments) -> Contents:
    """Return the file form of ``moments``."""
    arrays, classes = {}, []
    for i, (label, m) in enumerate(moments.items()):
        arrays[f"{i}.mean"], arrays[f"{i}.residue"] = m.centre
        form = "dense" if m.dense is not None else "factor"
        arrays[f"{i}.{form}"] = getattr(m, form)
        facts: dict[str, Any] = {name: getattr(m, name) for name in _FACTS}
        if m.groups is not None:
            facts["groups"] = asdict(m.groups)
        if m.sketch is not None:
            facts["sketch"] = {name: getattr(m.sketch, name) for name in _SKETCH_FACTS}
            arrays |= {f"{i}.sketch.{name}": getattr(m.sketch, name) for name in _SKETCH_ARRAYS}
        if m.ledger is not None:
            facts["ledger"] = m.ledger.to_plain()
        classes.append({"label": label, "form": form, **facts})
    return Contents(KIND, {"classes": classes}, arrays)


def single_to_contents(m: Moments) -> Contents:
    """Return the file form of the moments of one set of rows: that of a single class with the label 0."""
    return replace(to_contents(ClassMoments({0: m})), kind=SINGLE)


def single_from_contents(contents: Contents) -> Moments:
    """Return the moments of one set of rows from the contents of a file."""
    with built_from("moments"):
        return from_contents(contents)[0]


def from_contents(contents: Contents) -> ClassMoments:
    """Return the moments of each class from the contents of a file, after checking that its arrays are consistent."""
    with built_from("class moments"):
        entries = list(contents.header["classes"])
        by_label = dict(_class(contents, i, facts) for i, facts in enumerate(entries))
        if len(by_label) < len(entries):
            raise LabelError(f"Two of the {len(entries)} classes have the same label.")
        return ClassMoments(by_label)


def _class(contents: Contents, i: int, facts: Mapping[str, Any]) -> tuple[Label, Moments]:
    spread: dict[str, Any] = {
        form: contents.arrays.get(f"{i}.{form}") if facts["form"] == form else None for form in _FORMS
    }
    mean = contents.arrays[f"{i}.mean"]
    residue = contents.arrays.get(f"{i}.residue", np.zeros_like(mean))  # older files have none
    values = {name: facts[name] for name in _FACTS}
    groups = Groups(**facts["groups"]) if facts.get("groups") is not None else None  # older files have none
    # files of version 0.1 have neither
    sketch = _sketch(contents, i, facts.get("sketch"))
    ledger = Ledger.from_plain(facts["ledger"]) if facts.get("ledger") is not None else None
    m = Moments(mean=mean, residue=residue, groups=groups, sketch=sketch, ledger=ledger, **spread, **values)
    if m.count < 1:
        raise DataError(f"The class {facts['label']!r} holds no rows.")
    require_scatter(m)
    m.check_sketch()
    return facts["label"], m


def _sketch(contents: Contents, i: int, facts: Mapping[str, Any] | None) -> Sketch | None:
    arrays = {name: contents.arrays.get(f"{i}.sketch.{name}") for name in _SKETCH_ARRAYS}
    if facts is None and all(array is None for array in arrays.values()):
        return None
    missing = sorted({*_SKETCH_FACTS} - {*(facts or ())})
    if facts is None or missing:
        raise SketchError(
            f"the sketch lacks its {', '.join(missing)}: it was truncated or altered; count the rows again"
        )
    groups = None if facts["groups"] is None else tuple(facts["groups"])
    return Sketch(**arrays, **{**facts, "groups": groups})  # type: ignore[arg-type]
