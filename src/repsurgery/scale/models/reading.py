"""A job of reading texts by a model, that ranks and actors share out among themselves."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from repsurgery.arrays import Label, check_labels
from repsurgery.errors import MissingExtraError
from repsurgery.moments import ClassMoments
from repsurgery.moments.moments import Precision

if TYPE_CHECKING:
    from repsurgery.lm.read.states import Pooling

__all__ = ["Reading", "make_reading"]


@dataclass(frozen=True, slots=True)
class Reading:
    """Checked texts with their labels, and what is to be read of them: the arguments of `lm.class_moments`."""

    texts: list[str]
    labels: list[Label]
    sites: list[str]
    pooling: "Pooling"
    max_length: int | None
    batch_size: int
    precision: Precision
    work_dir: str | None

    def split(self, model: Any, tokenizer: Any, parts: int) -> list[list[int]]:
        """Hold the job against the model, and return the indices of the texts of each part."""
        from repsurgery.lm.batching import split_texts
        from repsurgery.lm.sites.names import resolve_site

        for site in self.sites:
            resolve_site(model, site)
        return split_texts(
            model, tokenizer, self.texts, parts=parts, max_length=self.max_length, batch_size=self.batch_size
        )

    def moments(self, model: Any, tokenizer: Any, index: list[int], *, progress: bool) -> dict[str, ClassMoments]:
        """Read the texts at ``index``; without any, return moments without classes."""
        from repsurgery import lm

        if not index:
            return {site: ClassMoments() for site in self.sites}
        return lm.class_moments(
            model,
            tokenizer,
            [self.texts[i] for i in index],
            [self.labels[i] for i in index],
            sites=self.sites,
            pooling=self.pooling,
            max_length=self.max_length,
            batch_size=self.batch_size,
            precision=self.precision,
            progress=progress,
            work_dir=self.work_dir,
        )

    def digest(self) -> str:
        """Return what tells two jobs apart; where results are kept is not part of it."""
        facts = [getattr(self, field.name) for field in fields(self) if field.name != "work_dir"]
        return sha256(repr(facts).encode()).hexdigest()


def make_reading(
    texts: Sequence[str],
    labels: Sequence[Label],
    *,
    sites: Sequence[str],
    pooling: "Pooling",
    max_length: int | None,
    batch_size: int,
    precision: Precision,
    work_dir: str | os.PathLike[str] | None,
    caller: str,
) -> Reading:
    """Check what can be checked without a model."""
    try:
        from repsurgery.lm.batching import check_texts
        from repsurgery.lm.read.class_moments import check_sites
        from repsurgery.lm.read.states import check_pooling
    except ImportError as error:
        raise MissingExtraError(f"{caller} needs PyTorch and Transformers: pip install 'repsurgery[lm]'") from error
    texts = check_texts(texts, caller=caller)
    classes, codes = check_labels(labels, len(texts), caller=caller)
    return Reading(
        texts,
        [classes[code] for code in codes],
        check_sites(sites),
        check_pooling(pooling),
        max_length,
        batch_size,
        precision,
        None if work_dir is None else os.fspath(work_dir),
    )
