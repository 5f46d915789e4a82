"""Measure a fitted steering on texts that were held out of its fit."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from repsurgery import lm
from repsurgery.certificates import Certificate, ContinuousCertificate, PairRecord
from repsurgery.certificates.certificate import Claim
from repsurgery.certificates.verify import FEWEST_ROWS, Verdict, verdict_of
from repsurgery.datasets import LabelledTexts, hold_out
from repsurgery.datasets.held_out import check_share
from repsurgery.lm.batching.batches import evaluating, map_batches
from repsurgery.lm.batching.tokens import Tokens, encode
from repsurgery.lm.read.states import Pooling, Turns, reader, row_counts, turns_to_read
from repsurgery.steering.base import BaseSteering

__all__ = ["FEWEST_TEXTS", "HeldOut", "TextReader", "measure", "split"]

FEWEST_TEXTS = 2
"""With fewer held-out texts of a label there is no covariance to measure."""
LARGEST = 2**24
"""The largest number of values of held-out states: 128 MiB in float64, of which measuring needs several copies."""

WIDER = 1.01
"""A gap counts as widened from this ratio on; wholly pooled covariances keep theirs up to rounding."""
_GAPS: dict[Claim, str] = {"means": "mean", "covariances": "covariance"}


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """What held-out texts say of a fitted steering.

    Attributes
    ----------
    certificate : Certificate or ContinuousCertificate
        Measured on the rows of these texts.
    verdict : {"supported", "contradicted", "cannot tell"}
        Whether they support the claims of the method; see `rs.verify`.
    texts, of : int
        How many texts were measured, of how many that were held out. They differ only where every token is a row and
        the rows of all held-out texts would not fit into memory.
    """

    certificate: Certificate | ContinuousCertificate
    verdict: Verdict
    texts: int
    of: int

    def notes(self, fitted: int) -> tuple[str, ...]:
        """Return sentences on the verdict after a fit on ``fitted`` texts, and on gaps that the map widens."""
        some = str(self.texts) if self.texts == self.of else f"{self.texts} of the {self.of} texts"
        verdict = {
            "supported": "which support its claims",
            "contradicted": "which contradict its claims",
            "cannot tell": "which are too few to tell whether its claims hold",
        }[self.verdict]
        said = f"The map is fitted on {fitted} texts and measured on {some} that were held out, {verdict}."
        if isinstance(self.certificate, ContinuousCertificate):
            return (said,)
        claimed = [(claim, name) for claim, name in _GAPS.items() if claim in self.certificate.claims]
        pairs = [(pair, name) for pair in self.certificate.by_source.values() for _, name in claimed]
        return (said, *(note for pair, name in pairs if (note := _widened(pair, name))))


@dataclass(frozen=True, slots=True, eq=False)
class TextReader:
    """A model, and how states are read from it; see `lm.extract`."""

    model: nn.Module
    tokenizer: Any
    site: str
    pooling: Pooling
    max_length: int | None
    progress: bool

    def lengths(self, texts: LabelledTexts) -> list[int]:
        """Return the number of rows of each text."""
        return self._tokens(texts)[2] if self.pooling == "all" else [1] * len(texts)

    def rows(self, texts: LabelledTexts) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[Any]]:
        """Return the states of the texts (n, d), and the label and the text of each row (n,)."""
        how: dict[str, Any] = {"site": self.site, "max_length": self.max_length, "progress": self.progress}
        if self.pooling != "all":
            X = lm.extract(self.model, self.tokenizer, texts.texts, pooling=self.pooling, **how)
            return X, np.array(texts.labels), np.array(texts.texts)
        tokens, turns, lengths = self._tokens(texts)
        with evaluating(self.model), reader(self.model, self.tokenizer, [self.site], "all") as read:

            def run(batch: list[int]) -> list[NDArray[np.float32]]:
                states = read([tokens[i] for i in batch], turns and [turns[i] for i in batch])[self.site]
                return np.split(states, np.cumsum([lengths[i] for i in batch])[:-1])

            parts = map_batches(
                list(map(len, tokens)), run, batch_size=32, progress=self.progress, label=f"reading {self.site}"
            )
        return np.concatenate(parts), np.repeat(texts.labels, lengths), np.repeat(texts.texts, lengths)

    def _tokens(self, texts: LabelledTexts) -> tuple[list[Tokens], Turns | None, list[int]]:
        """Return the tokens of the texts, which of them are read, and how many rows each text gives."""
        tokens = encode(self.model, self.tokenizer, list(texts.texts), max_length=self.max_length, caller="fit")
        turns = turns_to_read(self.tokenizer, texts.texts, tokens, self.pooling)
        return tokens, turns, row_counts(tokens, turns, self.pooling)


def split(
    texts: LabelledTexts, named: Iterable[str], *, share: float, seed: int
) -> tuple[LabelledTexts, LabelledTexts, str]:
    """Return the texts to fit on, the held-out ones, and why there are none of these ("" where there are some).

    Parameters
    ----------
    texts : LabelledTexts
    named : labels
        Those whose held-out texts are needed: the sources, the target and the neutral class.
    share, seed
        See `hold_out`.
    """
    check_share("held_out", share)
    if share == 0:
        return texts, texts.where([]), "The map is fitted on all texts, and none were held out to measure it on."
    fitted, held_out = hold_out(texts, share=share, seed=seed)
    rare = next((label for label in named if len(set(held_out.where(_of(held_out, label)).texts)) < FEWEST_TEXTS), None)
    if rare is None:
        return fitted, held_out, ""
    count = len(set(texts.where(_of(texts, rare)).texts))
    return (
        texts,
        texts.where([]),
        f"The map is fitted on all texts, because a share of {share:g} of the {count} distinct texts labelled {rare!r} "
        f"is fewer than the {FEWEST_TEXTS} texts that a held-out measurement needs.",
    )


def measure(estimator: BaseSteering, read: TextReader, held_out: LabelledTexts, *, seed: int) -> HeldOut:
    """Return what ``held_out`` texts say of ``estimator``; ``seed`` draws those that fit into memory."""
    taken = held_out.where(_fitting(read.lengths(held_out), held_out.labels, LARGEST // estimator.n_features_in_, seed))
    X, z, groups = read.rows(taken)
    continuous = isinstance(estimator.certificate_, ContinuousCertificate)
    z = z.astype(np.float64) if continuous else z
    certificate = estimator.certify(X, z, groups=groups)
    verdict: Verdict = "cannot tell"
    enough = len(np.unique(groups)) >= FEWEST_ROWS if continuous else _enough(certificate, z, groups)
    if enough:
        verdict = verdict_of(lambda: estimator.steering_.verify(X, z, groups=groups))
    return HeldOut(certificate, verdict, len(taken), len(held_out))


def _widened(pair: PairRecord, name: str) -> str:
    before, after = getattr(pair, f"{name}_gap_before"), getattr(pair, f"{name}_gap")
    if not after > WIDER * before:
        return ""
    return f"On held-out texts labelled {pair.source} it widens the {name} gap, from {before:.3g} to {after:.3g}."


def _enough(certificate: Certificate, z: NDArray[Any], groups: NDArray[Any]) -> bool:
    """Return whether each label that was measured has as many texts as the error of a mean is estimated from."""
    labels = {label for pair in certificate.by_source.values() for label in (pair.source, pair.target)}
    return all(len(np.unique(groups[z == label])) >= FEWEST_ROWS for label in labels)


def _fitting(lengths: Sequence[int], labels: Sequence[str], most: int, seed: int) -> list[int]:
    """Return the indices of texts of at most ``most`` rows in all, drawn in turn from each label."""
    if sum(lengths) <= most:
        return list(range(len(lengths)))
    seen = Counter[str]()
    turns = []
    for i in np.random.default_rng(seed).permutation(len(lengths)).tolist():
        turns.append((seen[labels[i]], i))
        seen[labels[i]] += 1
    turns.sort()
    totals = np.cumsum([lengths[i] for _, i in turns])
    return sorted(i for (turn, i), total in zip(turns, totals, strict=True) if total <= most or turn < FEWEST_TEXTS)


def _of(texts: LabelledTexts, label: str) -> list[bool]:
    return [one == label for one in texts.labels]
