"""A job of reading texts with a model, which is divided among ranks or actors."""

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
    """Checked texts and labels, and the other arguments of `lm.class_moments`."""

    texts: list[str]
    labels: list[Label]
    sites: list[str]
    pooling: "Pooling"
    max_length: int | None
    batch_size: int
    precision: Precision
    work_dir: str | None

    def split(self, model: Any, tokenizer: Any, parts: int) -> list[list[int]]:
        """Check that the model has the sites, and return the indices of the texts of each part."""
        from repsurgery.lm.sites.names import resolve_site
        from repsurgery.lm.splitting import split_texts

        for site in self.sites:
            resolve_site(model, site)
        return split_texts(
            model, tokenizer, self.texts, parts=parts, max_length=self.max_length, batch_size=self.batch_size
        )

    def moments(self, model: Any, tokenizer: Any, index: list[int], *, progress: bool) -> dict[str, ClassMoments]:
        """Read the texts at ``index``; an empty index gives moments without classes."""
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
        """Return a digest of the job, without the place of its results."""
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
    """Return a job after all checks that need no model."""
    try:
        from repsurgery.lm.read.class_moments import check_sites
        from repsurgery.lm.read.states import check_pooling
        from repsurgery.lm.texts import check_texts
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
