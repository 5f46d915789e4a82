"""`LabelledTexts`: texts with one label each, where they come from, and what they hash to."""

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field

from repsurgery.errors import DataError, LabelError

__all__ = ["LabelledTexts"]


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """Texts and their labels, in order.

    Parameters
    ----------
    texts : tuple of str
        The n texts; none is empty.
    labels : tuple of str
        The n labels; none is empty.
    name, source, licence : str
        What the texts are called, where they come from, and under which terms.

    Attributes
    ----------
    digest : str
        SHA-256 of texts and labels in order: a result computed from these texts names it.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    name: str
    source: str
    licence: str = "unknown"
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", tuple(self.texts))
        object.__setattr__(self, "labels", tuple(self.labels))
        if len(self.texts) != len(self.labels):
            raise LabelError(
                f"{self.name} has {len(self.texts)} texts and {len(self.labels)} labels. Give each text one label."
            )
        for row, (text, label) in enumerate(zip(self.texts, self.labels, strict=True)):
            if not text.strip():
                raise DataError(f"{self.name}: text {row} is empty. Remove it.")
            if not label.strip():
                raise LabelError(f"{self.name}: text {row} has no label. Label it, or remove it.")
        pairs = json.dumps(list(zip(self.texts, self.labels, strict=True)), ensure_ascii=False)
        object.__setattr__(self, "digest", hashlib.sha256(pairs.encode()).hexdigest())

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def counts(self) -> dict[str, int]:
        """Return how many texts carry each label, labels sorted."""
        return dict(sorted(Counter(self.labels).items()))
