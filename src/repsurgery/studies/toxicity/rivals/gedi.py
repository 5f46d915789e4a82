"""GeDi: a guide that tells two classes apart weighs every candidate for the next token (Krause et al., 2021)."""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch

from repsurgery.errors import ParameterError
from repsurgery.lm.batching.tokens import Tokens, pad, pad_id
from repsurgery.studies.toxicity.decoding.adapters import BASE_ROWS, adapted_rows, with_adapters
from repsurgery.studies.toxicity.decoding.cached_model import CachedModel
from repsurgery.studies.toxicity.decoding.guide import (
    GUIDE,
    RECIPE,
    Codes,
    log_likelihoods,
    scale_and_bias,
    train_guide,
)
from repsurgery.studies.toxicity.decoding.parts import Made, Part, Workshop
from repsurgery.studies.toxicity.decoding.rival import Rival
from repsurgery.studies.toxicity.decoding.sampler import Decoder
from repsurgery.studies.toxicity.generators import GENERATORS, GeneratorContext

__all__ = ["GeDi", "class_margins", "filtered", "penalised"]

CLASS_BIAS = 2.0
"""Added to the score of the wanted class."""
TARGET = 0.8
"""τ: tokens whose class probability, without the class bias, reaches this are never removed."""
PENALTY_SCALE = 10.0
"""The largest score before the repetition penalty divides."""


def class_margins(
    totals: torch.Tensor, candidates: torch.Tensor, lengths: torch.Tensor, scale: float, bias: float
) -> torch.Tensor:
    """Return the log-odds (n, vocabulary) of the wanted class after each candidate, without the class bias.

    Parameters
    ----------
    totals : (n,) tensor
        The log-likelihood of the text so far under the wanted code, less that under the unwanted one.
    candidates : (n, vocabulary) tensor
        The same difference for each candidate.
    lengths : (n,) tensor
        The number of tokens in ``totals``.
    scale, bias : float
        The learned scale, and the wanted class's learned bias less the unwanted one's.
    """
    return scale * (totals[:, None] + candidates) / (lengths[:, None] + 1) + bias


def filtered(z: torch.Tensor, margins: torch.Tensor, filter_p: float, target_p: float = TARGET) -> torch.Tensor:
    """Return ``z`` (n, vocabulary) with -inf at the tokens that are least of the wanted class.

    In the order of rising ``margins``, a token is removed while the mass of softmax(z) up to and including it is below
    ``filter_p``, unless its class probability reaches ``target_p``.
    """
    below = margins < math.log(target_p / (1 - target_p))
    p = torch.softmax(z, dim=-1)
    removed = below.clone()
    # where all tokens below the target have too little mass together, all of them go and no order is needed
    for row in (torch.where(below, p, 0.0).sum(dim=-1) >= filter_p).nonzero()[:, 0].tolist():
        order = margins[row].argsort(stable=True)
        removed[row] &= torch.zeros_like(below[row]).scatter_(0, order, p[row, order].cumsum(dim=0) < filter_p)
    return z.masked_fill(removed, -torch.inf)


def penalised(z: torch.Tensor, written: torch.Tensor, penalty: float) -> torch.Tensor:
    """Return ``z`` (n, vocabulary), shifted to a maximum of 10 and divided by ``penalty`` at the tokens ``written``.

    ``written`` (n, steps) are the tokens after the prompt; a token divides once for each time it was written. As in the
    authors' code, negative scores are divided, too, which raises them.
    """
    z = z - z.amax(dim=-1, keepdim=True) + PENALTY_SCALE
    times = torch.zeros_like(z).scatter_add_(1, written, torch.ones_like(written, dtype=z.dtype))
    return z / penalty**times


@GENERATORS.register("gedi")
class GeDi(Rival):
    """Draw from softmax(log p_base + omega log P(wanted | candidate)), without the candidates that are least wanted.

    The guide is the study's model with one adapter, trained on texts of both labels after the control code of either
    (``codes``, the wanted one first). P comes from its log-likelihoods of the text so far, prompt included, and of
    the candidate under both codes: their mean over tokens, times a learned scale, plus a learned bias, plus 2 for the
    wanted class. Base and guide read one batch of three rows per text, with one cache.

    Candidates are then removed in the order of rising P while their mass is below ``filter``, except those whose P
    reaches 0.8 without the class bias; ``filter=0`` removes none. A ``penalty`` above 1 is the authors' repetition
    penalty (theirs is 1.2): scores are shifted to a maximum of 10 and those of tokens already written are divided. It
    changes repetition and perplexity by itself, so it is off by default. Last comes the study's nucleus.

    With ``omega=0`` the guide is left out, and so are filter and penalty.

    Guarantees
    ----------
    With ``omega=0`` it writes what the base writes (test_strength_zero_is_the_base).
    The cache changes no score (test_scores_with_a_cache_are_the_formula_without_one).
    """

    options: ClassVar = {"omega": 30.0, "tokens": 50_000, "filter": 0.8, "penalty": 1.0, "codes": "clean/dirty"}
    needs: ClassVar[str] = "labelled texts; one adapter"

    def __init__(self, name: str, context: GeneratorContext, **options: Any) -> None:
        super().__init__(name, context, **options)
        omega, filter_p, penalty = (options[option] for option in ("omega", "filter", "penalty"))
        if not (math.isfinite(omega) and 0 <= filter_p < 1 and 0 < penalty < math.inf):
            raise ParameterError(
                f"{name!r} has omega={omega}, filter={filter_p} and penalty={penalty}; omega must be finite, "
                "filter must lie in [0, 1) and penalty must be positive."
            )
        if omega:
            self.codes  # noqa: B018  # words that the tokenizer does not tell apart are refused before any training

    @cached_property
    def codes(self) -> Codes:
        """The control codes."""
        return Codes.of(self.tokenizer, self.chosen["codes"])

    @property
    def extra_passes(self) -> float:
        """Two, of the guide under both codes; none without omega."""
        return 2.0 if self.chosen["omega"] else 0.0

    def parts(self) -> Mapping[str, Part]:
        """Return the guide; without omega there is none."""
        if not self.chosen["omega"]:
            return {}
        recipe = {**RECIPE, "tokens": self.chosen["tokens"], "codes": self.chosen["codes"]}
        return {GUIDE: Part("class-conditional guide", self._train, recipe)}

    def _train(self, workshop: Workshop) -> Made:
        spec, fitted = self.context.spec, self.context.texts.fitted
        texts = fitted[spec.target], fitted[spec.source]
        options: dict[str, Any] = {"tokens": self.chosen["tokens"], "seed": spec.seed, "workshop": workshop}
        return train_guide(self.model, self.tokenizer, texts, self.codes, **options)

    def encode(self, prompts: Any) -> list[Tokens]:
        """Return the tokens of each prompt, with room for a control code and the continuation."""
        return self.encoded(prompts, room=self.codes.longest if self.chosen["omega"] else 0)

    def decoder(self) -> Decoder:
        """Return the guided model."""
        return _Guided(self) if self.chosen["omega"] else CachedModel(self.model)

    @cached_property
    def guided(self) -> Any:
        """The model with the guide's adapter."""
        arrays = {name: array for name, array in self.part(GUIDE).arrays.items() if name != "class"}
        return with_adapters(self.model, {GUIDE: arrays})

    @cached_property
    def head(self) -> tuple[float, float]:
        """The learned scale, and the wanted class's learned bias less the unwanted one's."""
        scale, (wanted, unwanted) = scale_and_bias(torch.from_numpy(np.array(self.part(GUIDE).arrays["class"])))
        return scale.item(), (wanted - unwanted).item()


class _Guided:
    """Three rows of one cache per text: the base, and the guide under the wanted and the unwanted code."""

    def __init__(self, rival: GeDi) -> None:
        self.rival = rival
        self.omega, self.filter_p, self.penalty = (rival.chosen[name] for name in ("omega", "filter", "penalty"))

    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        rival, n = self.rival, len(ids)
        padding = pad_id(rival.model, rival.tokenizer)
        rows = [row[kept].tolist() for row, kept in zip(ids, mask.bool(), strict=True)]
        coded, starts = zip(*(rival.codes.before(row) for row in rows), strict=True)
        wanted, unwanted = ([both[c] for both in coded] for c in (0, 1))
        self.totals, self.lengths = self._prompts([*wanted, *unwanted], [s[c] for c in (0, 1) for s in starts], padding)
        self.three = adapted_rows(rival.guided, [BASE_ROWS] * n + [GUIDE] * (2 * n))
        every, every_mask = pad([*rows, *wanted, *unwanted], token=padding, side="left")
        self.written = ids[:, :0]
        return self._weighed(self.three.read(every.to(ids.device), every_mask.to(ids.device)))

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        self.totals = self.totals + self.candidates.gather(1, tokens[:, None])[:, 0]
        self.lengths = self.lengths + 1
        self.written = torch.cat([self.written, tokens[:, None]], dim=1)
        return self._weighed(self.three.step(tokens.repeat(3)))

    def _prompts(self, rows: list[Tokens], starts: list[int], padding: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the difference (n,) of the prompts' log-likelihoods under the two codes, and their lengths (n,)."""
        distinct = list(dict.fromkeys(map(tuple, rows)))
        first = dict(zip(map(tuple, rows), starts, strict=True))
        self.rival.guided.set_adapter(GUIDE)
        totals, counts = log_likelihoods(
            self.rival.guided, [list(row) for row in distinct], [first[row] for row in distinct], padding=padding
        )
        index = torch.tensor([distinct.index(tuple(row)) for row in rows], device=totals.device)
        wanted, unwanted = totals[index].chunk(2)
        return wanted - unwanted, counts[index].chunk(2)[0]

    def _weighed(self, logits: torch.Tensor) -> torch.Tensor:
        base, wanted, unwanted = torch.log_softmax(logits, dim=-1).chunk(3)
        self.candidates = wanted - unwanted
        margins = class_margins(self.totals, self.candidates, self.lengths, *self.rival.head)
        z = base + self.omega * torch.nn.functional.logsigmoid(margins + CLASS_BIAS)
        if self.filter_p:
            z = filtered(z, margins, self.filter_p)
        return penalised(z, self.written, self.penalty) if self.penalty != 1 else z
