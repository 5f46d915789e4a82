"""`ClassifierScorer`: any Hugging Face text classifier; `DetoxifyScorer`: the three of Detoxify."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from repsurgery.arrays import check_integer
from repsurgery.errors import ParameterError
from repsurgery.scorers.base import SCORERS, score_visible
from repsurgery.scorers.transformer import Activation, TextClassifier, read_classifier

__all__ = ["ClassifierScorer", "DetoxifyScorer"]

Variant = Literal["original", "unbiased", "multilingual"]

_TOXIC = ("toxic", "toxicity")
_DETOXIFY = MappingProxyType(
    {
        "original": "unitary/toxic-bert",
        "unbiased": "unitary/unbiased-toxic-roberta",
        "multilingual": "unitary/multilingual-toxic-xlm-roberta",
    }
)


@dataclass(frozen=True, slots=True)
class ClassifierScorer:
    """Score texts by the probability that a transformer gives to one of its labels.

    The model runs in float32, in batches of texts of similar length. A text that exceeds the model's context loses its
    end. Code in a model's folder is not run.

    Parameters
    ----------
    model : str or path
        A folder written by ``save_pretrained``, or a hub id.
    label : str or None
        The label whose probability is the score. None: the one called "toxic" or "toxicity", or the only label.
    activation : {"sigmoid", "softmax"} or None
        How outputs become probabilities. None: as the configuration says, sigmoid for labels that do not exclude each
        other and for a single output, softmax for labels that do.
    revision : str or None
        The branch, tag or commit; for hub ids only.
    batch_size : int
    device : str or None
        None stands for the CPU.

    Attributes
    ----------
    name : str
        The hub id or the name of the folder, and the label: "unitary/toxic-bert#toxic".
    version : str
        The commit on the hub, "local" for a folder.
    digest : str
        SHA-256 over the parameters in float32, by name, and over label and activation.

    Guarantees
    ----------
    * A text's score does not depend on the texts around it, beyond the rounding of float32
      (test_scores_are_those_of_each_text_alone).
    * Another parameter, label or activation gives another digest; another file form of the same weights does not
      (test_the_digest_follows_what_decides_the_score).
    """

    model: str | os.PathLike[str]
    label: str | None = None
    activation: Activation | None = field(default=None, kw_only=True)
    revision: str | None = field(default=None, kw_only=True)
    batch_size: int = field(default=32, kw_only=True)
    device: str | None = field(default=None, kw_only=True)
    name: str = field(init=False)
    version: str = field(init=False)
    digest: str = field(init=False)
    _classifier: TextClassifier = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.activation not in (None, "sigmoid", "softmax"):
            raise ParameterError(f"activation={self.activation!r} is not 'sigmoid', 'softmax' or None.")
        check_integer("batch_size", self.batch_size)
        classifier = read_classifier(self.model, revision=self.revision, device=self.device)
        label = _choose(self.label, classifier)
        activation = self.activation or classifier.activation
        decided = {
            "label": label,
            "activation": activation,
            "name": f"{classifier.name}#{label}",
            "version": classifier.version,
            "digest": _digest(classifier.digest(), label, activation),
            "_classifier": classifier,
        }
        for key, value in decided.items():
            object.__setattr__(self, key, value)

    def __call__(self, texts: Sequence[str]) -> list[float | None]:
        """Return the probability (n,) of the label for each text; None for texts without a visible character."""
        return score_visible(texts, self._predict, caller=type(self).__name__)

    def _predict(self, texts: list[str]) -> list[float]:
        activation = self.activation or self._classifier.activation
        scores = self._classifier.probabilities(texts, activation=activation, batch_size=self.batch_size)
        column: list[float] = scores[:, self._classifier.labels.index(str(self.label))].tolist()
        return column


@SCORERS.register("detoxify")
class DetoxifyScorer(ClassifierScorer):
    """Score texts by Detoxify's weights on the hub, without its package.

    Each label has a sigmoid of its own, as in training, whatever the configuration on the hub says.

    Parameters
    ----------
    variant : {"original", "unbiased", "multilingual"}
        unitary/toxic-bert, unitary/unbiased-toxic-roberta, unitary/multilingual-toxic-xlm-roberta.
    revision, batch_size, device
        As for `ClassifierScorer`.

    Attributes
    ----------
    name : str
        "detoxify-original", "detoxify-unbiased" or "detoxify-multilingual".
    """

    __slots__ = ()

    def __init__(
        self,
        variant: Variant = "original",
        *,
        revision: str | None = None,
        batch_size: int = 32,
        device: str | None = None,
    ) -> None:
        if variant not in _DETOXIFY:
            raise ParameterError(f"variant={variant!r} is not one of {', '.join(map(repr, _DETOXIFY))}.")
        super().__init__(
            _DETOXIFY[variant], activation="sigmoid", revision=revision, batch_size=batch_size, device=device
        )
        object.__setattr__(self, "name", f"detoxify-{variant}")


@SCORERS.register("detoxify-unbiased")
def _unbiased() -> DetoxifyScorer:
    return DetoxifyScorer("unbiased")


@SCORERS.register("detoxify-multilingual")
def _multilingual() -> DetoxifyScorer:
    return DetoxifyScorer("multilingual")


@SCORERS.register("hf")
def _from_hub(folder_or_hub_id: str) -> ClassifierScorer:
    model, _, label = folder_or_hub_id.partition("#")
    return ClassifierScorer(model, label or None)


def _digest(parameters: str, label: str, activation: str) -> str:
    return hashlib.sha256(f"{parameters}|{label}|{activation}".encode()).hexdigest()


def _choose(label: str | None, classifier: TextClassifier) -> str:
    labels = classifier.labels
    if label is None and len(labels) == 1:
        return labels[0]
    wanted = _TOXIC if label is None else (label.lower(),)
    matches = [name for name in labels if name == label] or [name for name in labels if name.lower() in wanted]
    if len(matches) != 1:
        problem = "no single label for toxicity" if label is None else f"no label {label!r}"
        raise ParameterError(f"{classifier.name} has {problem}. Choose one of its labels: {', '.join(labels)}.")
    return matches[0]
