"""Self-debiasing (Schick, Udupa and Schütze 2021): lower what the model would say if it were told to be toxic."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from repsurgery.errors import ParameterError
from repsurgery.lm.batching.tokens import Tokens, pad, pad_id
from repsurgery.studies.toxicity.decoding.cached_model import CachedModel
from repsurgery.studies.toxicity.decoding.label_words import warn_of_labels
from repsurgery.studies.toxicity.decoding.rival import Rival
from repsurgery.studies.toxicity.generators import GENERATORS, GeneratorContext

__all__ = ["SelfDebias", "debiased", "prefixes_of"]

SEVERE = "very hateful, aggressive, disrespectful language"
SIX = (
    "rude, disrespectful or unreasonable language",
    SEVERE,
    "sexually explicit language",
    "threatening language",
    "swear words, curse words, or other obscene or profane language",
    "negative or hateful language targeting someone because of their identity",
)
"""The paper's descriptions of the attributes of Perspective: toxicity, severe toxicity, sexual content, threats, ..."""
ATTRIBUTES: Mapping[str, Sequence[str]] = {"severe": (SEVERE,), "six": SIX}


@GENERATORS.register("self-debias")
class SelfDebias(Rival):
    """Sample from p · max(exp(−decay · max(0, p' − p)), floor), renormalised.

    p is the model's distribution after the prompt, and p' its distribution after a sentence that announces a toxic
    text, followed by the same prompt. With several such sentences, p' is the largest probability that any of them
    gives to a token. The rows with and without sentences are read as one batch; the nucleus is taken of the result.

    Other labels than "toxic" are announced by "The following text is very LABEL:".

    Attributes
    ----------
    options
        ``decay`` is at least 0, where 0 is the base model, and ``floor`` lies in [0, 1]. ``attributes`` chooses one
        sentence about severe toxicity (severe), or one for each of six attributes of toxicity (six).

    Guarantees
    ----------
    Without decay the tokens are those of the base (test_without_decay_the_texts_are_those_of_the_base).
    A token is the less probable the larger the decay, if the sentence favours it (test_more_decay_lowers_more).
    """

    options: ClassVar[Mapping[str, str | int | float]] = {"decay": 50.0, "floor": 0.01, "attributes": "severe"}
    needs: ClassVar[str] = "a word for the source"

    def __init__(self, name: str, context: GeneratorContext, **options: Any) -> None:
        super().__init__(name, context, **options)
        decay, floor, attributes = (self.chosen[option] for option in self.options)
        if not 0 <= decay < math.inf or not 0 <= floor <= 1:
            raise ParameterError(
                f"{name!r} has decay {decay} and floor {floor}; decay must be at least 0, and floor must lie in [0, 1]."
            )
        if attributes not in ATTRIBUTES:
            raise ParameterError(f"{name!r} has attributes {attributes!r}; choose one of {', '.join(ATTRIBUTES)}.")
        source = context.spec.source
        if attributes != "severe" and source != "toxic":
            raise ParameterError(
                f"{name!r} has attributes={attributes}, which describe toxicity, and the source is {source!r}. Leave "
                "attributes out, or name the source 'toxic'."
            )
        warn_of_labels(name, source)
        self.prefixes = prefixes_of(source, attributes)

    @property
    def extra_passes(self) -> float:
        """One for each sentence."""
        return float(len(self.prefixes))

    @property
    def identity(self) -> Mapping[str, Any]:
        """Also the sentences, which depend on the source label."""
        return {**super().identity, "prefixes": self.prefixes}

    def encode(self, prompts: Sequence[str]) -> list[Tokens]:
        """Return the tokens of each prompt, after a check that it fits into the context with every sentence."""
        for prefix in self.prefixes:
            self.encoded(prompts, before=prefix)
        return super().encode(prompts)

    def decoder(self) -> "Debiasing":
        """Return a decoder that reads each row with and without the sentences."""
        return Debiasing(self, super().encode(self.prefixes))


class Debiasing:
    """The rows of a batch followed by copies with each prefix, in one cache."""

    def __init__(self, rival: SelfDebias, prefixes: Sequence[Tokens]) -> None:
        self._model, self._rival, self._prefixes = CachedModel(rival.model), rival, prefixes
        self._padding, self._start = pad_id(rival.model, rival.tokenizer), rival.tokenizer.bos_token_id

    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the debiased logits (n, vocabulary) after prompts (n, length), padded on the left."""
        rows = [row[kept].tolist() for row, kept in zip(ids, mask.bool(), strict=True)]
        announced = [self._after(prefix, row) for prefix in self._prefixes for row in rows]
        both, positions = pad([*rows, *announced], token=self._padding, side="left")
        return self._combined(self._model.read(both.to(ids.device), positions.to(ids.device)))

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the debiased logits (n, vocabulary) after one more token (n,) of each row."""
        return self._combined(self._model.step(tokens.repeat(1 + len(self._prefixes))))

    def _after(self, prefix: Tokens, row: Tokens) -> Tokens:
        # the prefix has the token that begins a text, so the row's own is left out
        return [*prefix, *(row[1:] if row[0] == prefix[0] == self._start else row)]

    def _combined(self, logits: torch.Tensor) -> torch.Tensor:
        base, *others = logits.chunk(1 + len(self._prefixes))
        decay, floor = (self._rival.chosen[option] for option in ("decay", "floor"))
        return debiased(base, torch.stack(others), decay=decay, floor=floor)


def debiased(logits: torch.Tensor, announced: torch.Tensor, *, decay: float, floor: float) -> torch.Tensor:
    """Return the logarithm, up to a constant per row, of p · max(exp(−decay · max(0, p' − p)), floor).

    Parameters
    ----------
    logits : (n, vocabulary) tensor
        They define p.
    announced : (k, n, vocabulary) tensor
        Logits after each of k prefixes; p' is the largest of their k probabilities.
    decay, floor : float
    """
    p, worst = logits.softmax(dim=-1), announced.softmax(dim=-1).amax(dim=0)
    lowered = -decay * (worst - p).clamp(min=0)
    return logits + lowered.clamp(min=math.log(floor) if floor > 0 else -math.inf)


def prefixes_of(label: str, attributes: str = "severe") -> list[str]:
    """Return the sentences that announce a text with ``label``, each on a line of its own."""
    if label != "toxic":
        return [f"The following text is very {label}:\n"]
    return [f"The following text contains {description}:\n" for description in ATTRIBUTES[attributes]]
