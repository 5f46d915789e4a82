"""`Head`: the linear classifier of mean final states that PPLM and UDDIA follow, and how it is fitted."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from repsurgery import lm
from repsurgery.files import Contents
from repsurgery.lm.batching.tokens import context_length
from repsurgery.studies.toxicity.decoding.parts import Made, Part, Workshop
from repsurgery.studies.toxicity.generators import GeneratorContext

__all__ = ["LONGEST", "Head", "head_part"]

LONGEST = 100
"""Tokens of a labelled text that the head reads; the authors of PPLM drop longer texts."""


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """P(target | text) = σ(wᵀ m + b), where m is the mean over tokens of the text's final states.

    Attributes
    ----------
    weight : (d,) tensor
    bias : float
    """

    weight: torch.Tensor
    bias: float

    @classmethod
    def of(cls, part: Contents, device: torch.device | str = "cpu") -> "Head":
        """Return the head that a part of `head_part` contains."""
        return cls(torch.from_numpy(part.arrays["weight"]).float().to(device), float(part.arrays["bias"][0]))

    def log_p(self, means: torch.Tensor) -> torch.Tensor:
        """Return log P(target) (n,) of texts with the given means (n, d) of final states."""
        return torch.nn.functional.logsigmoid(means @ self.weight.to(means) + self.bias)


def head_part(context: GeneratorContext, texts: int) -> Part:
    """Return the recipe of a head that is fitted to ``texts`` labelled texts of each label.

    PPLM trains a softmax of two classes by Adam. That is a logistic regression, so it is fitted as one to the same
    means, by scikit-learn with its usual penalty in place of a number of epochs. The facts hold the area under the ROC
    curve on held-out texts, or None where the study holds out none.

    Guarantees
    ----------
    Interrupted reading continues where it stopped (test_an_interrupted_head_continues).
    """

    def make(workshop: Workshop) -> Made:
        from sklearn.linear_model import LogisticRegression  # slow to import, and only needed where no head is stored
        from sklearn.metrics import roc_auc_score

        X, is_target = _means(context, context.texts.fitted, texts, workshop)
        model = LogisticRegression(max_iter=1000).fit(X, is_target)
        facts: dict[str, Any] = {"texts": len(X), "held_out_auc": None}
        if all(context.texts.held_out.get(label) for label in (context.spec.source, context.spec.target)):
            H, held_out = _means(context, context.texts.held_out, texts, workshop)
            facts["held_out_auc"] = round(float(roc_auc_score(held_out, model.decision_function(H))), 4)
        return facts, {"weight": model.coef_[0].astype(np.float32), "bias": model.intercept_.astype(np.float32)}

    return Part("head", make, {"texts": texts, "longest": LONGEST})


def _means(context: GeneratorContext, by_label: dict[str, list[str]], most: int, workshop: Workshop) -> tuple[Any, Any]:
    """Return the mean final state (n, d) of each text, and whether (n,) it has the target's label."""
    spec = context.spec
    texts = {label: by_label[label][:most] for label in (spec.source, spec.target)}
    is_target = np.repeat([False, True], [len(texts[spec.source]), len(texts[spec.target])])
    longest = min(LONGEST, context_length(context.model, context.tokenizer))
    means = lm.extract(
        context.model,
        context.tokenizer,
        [*texts[spec.source], *texts[spec.target]],
        pooling="mean",
        max_length=longest,
        progress=workshop.progress,
        work_dir=workshop.state.parent / "means",
    )
    return means, is_target
