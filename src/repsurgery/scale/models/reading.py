"""A job of reading texts with a model, whose parts are shared out among ranks or actors."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from repsurgery.arrays import Label, check_labels
from repsurgery.checkpoint import digest
from repsurgery.errors import MissingExtraError
from repsurgery.moments import ClassMoments
from repsurgery.moments.moments import Precision

if TYPE_CHECKING:
    from repsurgery.lm.read.states import Pooling

__all__ = ["Reading"]


@dataclass(frozen=True, slots=True)
class Reading:
    """The arguments of `lm.class_moments`, to be read by several processes."""

    texts: Sequence[str]
    labels: Sequence[Label]
    sites: Sequence[str]
    pooling: "Pooling"
    max_length: int | None
    batch_size: int
    precision: Precision
    work_dir: str | os.PathLike[str] | None

    def checked(self, caller: str) -> "Reading":
        """Return this job with texts, labels and sites as lists, after every check that needs no model."""
        try:
            from repsurgery.lm.batching.tokens import check_texts
            from repsurgery.lm.read.class_moments import check_sites
            from repsurgery.lm.read.states import check_pooling
        except ImportError as error:
            raise MissingExtraError(f"{caller} needs PyTorch and Transformers: pip install 'repsurgery[lm]'") from error
        texts = check_texts(self.texts, caller=caller)
        classes, codes = check_labels(self.labels, len(texts), caller=caller)
        labels, sites = [classes[code] for code in codes], check_sites(self.sites)
        check_pooling(self.pooling)
        return replace(self, texts=texts, labels=labels, sites=sites)

    def split(self, model: Any, tokenizer: Any, parts: int) -> list[list[int]]:
        """Check the job against the model, and return the indices of the texts of each part."""
        from repsurgery.lm.batching.batches import split_texts
        from repsurgery.lm.sites.names import resolve_site

        for site in self.sites:
            resolve_site(model, site)
        return split_texts(
            model, tokenizer, list(self.texts), parts=parts, max_length=self.max_length, batch_size=self.batch_size
        )

    def moments(self, model: Any, tokenizer: Any, index: list[int], *, progress: bool) -> dict[str, ClassMoments]:
        """Return the moments of the texts at ``index``, per site; without any text they have no classes."""
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
        """Return a digest of the job; the folder for intermediate results is not part of it."""
        facts = [getattr(self, field.name) for field in fields(self) if field.name != "work_dir"]
        return digest(facts)
