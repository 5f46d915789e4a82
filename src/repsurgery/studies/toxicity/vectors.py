"""The vectors on which maps are fitted: last tokens, every token, and the model's own continuations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from repsurgery import lm
from repsurgery.arrays import Label, Matrix
from repsurgery.moments import ClassMoments
from repsurgery.studies.toxicity.generators import GeneratorContext

if TYPE_CHECKING:
    from repsurgery.studies.toxicity.price import Price

__all__ = ["Labelled", "Vectors", "read_last", "read_tokens"]


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """Rows (n, d), the label of each, and the text that each comes from; None where every row has its own."""

    X: NDArray[np.float32]
    z: NDArray[Any]
    groups: NDArray[Any] | None = None

    def first(self, rows: int) -> "Labelled":
        """Return the first ``rows`` rows of each label; 0: all."""
        if rows == 0:
            return self
        chosen = np.sort(np.concatenate([np.flatnonzero(self.z == label)[:rows] for label in np.unique(self.z)]))
        return Labelled(self.X[chosen], self.z[chosen], None if self.groups is None else self.groups[chosen])


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """What maps are fitted on, by site.

    Attributes
    ----------
    last, held_out : last tokens of the texts to fit on, and of those held out
    tokens : moments of every token of the texts to fit on
    policy : on-policy steps with the label of their text
    steps : on-policy steps with the label of their own credit
    gradients : (n_prompts, d) gradients of the expected score of on-policy texts
    prices : Fisher matrix and steps by which a steering is priced
    """

    last: dict[str, Labelled] = field(default_factory=dict)
    held_out: dict[str, Labelled] = field(default_factory=dict)
    tokens: dict[str, ClassMoments] = field(default_factory=dict)
    policy: dict[str, Labelled] = field(default_factory=dict)
    steps: dict[str, Labelled] = field(default_factory=dict)
    gradients: dict[str, Matrix] = field(default_factory=dict)
    prices: dict[str, "Price"] = field(default_factory=dict)


def read_last(
    context: GeneratorContext, texts: Mapping[str, list[str]], site: str, rows: int, *, progress: bool
) -> Labelled:
    """Return the last token's vector of the first ``rows`` texts of each label; 0: all texts."""
    chosen, labels = _first(texts, rows)
    X = lm.extract(context.model, context.tokenizer, chosen, site=site, **_reading(context, progress=progress))
    return Labelled(X, np.array(labels))


def read_tokens(
    context: GeneratorContext, texts: Mapping[str, list[str]], sites: list[str], *, progress: bool
) -> dict[str, ClassMoments]:
    """Return, per site, the moments of every token of the first ``token_rows`` texts of each label."""
    chosen, labels = _first(texts, context.spec.token_rows)
    how = _reading(context, progress=progress)
    return lm.class_moments(context.model, context.tokenizer, chosen, labels, sites=sites, pooling="all", **how)


def _first(texts: Mapping[str, list[str]], rows: int) -> tuple[list[str], list[Label]]:
    pairs = [(text, label) for label, every in texts.items() for text in every[: rows or None]]
    return [text for text, _ in pairs], [label for _, label in pairs]


def _reading(context: GeneratorContext, *, progress: bool) -> dict[str, Any]:
    return {"max_length": context.spec.max_length, "progress": progress, "work_dir": context.work / "states"}
