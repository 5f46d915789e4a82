"""A class-conditional guide: one adapter that reads a text after either of two control codes, and tells them apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from repsurgery.errors import DataError, ParameterError
from repsurgery.lm.batching.batches import entry_device
from repsurgery.lm.batching.tokens import Tokens, context_length, encode, pad, pad_id
from repsurgery.studies.toxicity.decoding.adapters import LEARNING_RATE, RANK, adapter_arrays, trainable, with_adapters
from repsurgery.studies.toxicity.decoding.parts import Made, Workshop
from repsurgery.studies.toxicity.decoding.training import train

__all__ = ["GUIDE", "RECIPE", "Codes", "log_likelihoods", "scale_and_bias", "train_guide"]

GUIDE = "guide"
"""The name of the adapter."""
BATCH = 4
"""Texts of one training step; each is read under both codes."""
LONGEST = 96
"""Tokens that are read of each training text."""
GENERATIVE = 0.8
"""λ: the weight of the likelihood under the true code; the rest is the weight of the classification."""
HEAD_RATE = 30.0
"""How much faster than the adapter the class scale and bias learn: the authors take a hundred times as many steps."""
RECIPE = {
    "rank": RANK,
    "batch": BATCH,
    "longest": LONGEST,
    "generative": GENERATIVE,
    "head_rate": HEAD_RATE,
    "learning_rate": LEARNING_RATE,
}
"""What decides a guide, beside codes, texts and their number of tokens."""


@dataclass(frozen=True, slots=True)
class Codes:
    """The tokens of two control codes, and the token that begins every text (None where the tokenizer adds none)."""

    wanted: Tokens
    unwanted: Tokens
    begin: int | None

    @classmethod
    def of(cls, tokenizer: Any, words: str) -> "Codes":
        """Return the codes of two words that are joined by a slash, the wanted one first."""
        parts = words.split("/")
        codes = [list(tokenizer(word, add_special_tokens=False)["input_ids"]) for word in parts]
        if len(codes) != 2 or not all(codes) or codes[0] == codes[1]:
            raise ParameterError(
                f"codes is {words!r}, which this tokenizer reads as {codes}; it must be two words with different "
                "tokens, joined by a slash and the wanted one first. Words that the tokenizer does not know all have "
                "the same token, so choose two of its vocabulary."
            )
        return cls(codes[0], codes[1], tokenizer.bos_token_id)

    @property
    def longest(self) -> int:
        """The number of positions that a code takes at most."""
        return max(len(self.wanted), len(self.unwanted))

    def before(self, row: Tokens) -> tuple[list[Tokens], list[int]]:
        """Return ``row`` with each code before its text, and the index of the first token after the code."""
        begin = 1 if row[:1] == [self.begin] else 0
        coded = [[*row[:begin], *code, *row[begin:]] for code in (self.wanted, self.unwanted)]
        return coded, [begin + len(code) for code in (self.wanted, self.unwanted)]


def log_likelihoods(
    model: Any, rows: Sequence[Tokens], starts: Sequence[int], *, padding: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-likelihood (n,) of the tokens of each row from its start on, and their number (n,)."""
    ids, mask = pad(rows, token=padding, side="right")
    device = entry_device(model)
    position = torch.arange(ids.shape[1])
    scored = mask.bool() & (position >= torch.tensor(starts)[:, None])
    logits = model(input_ids=ids.to(device), attention_mask=mask.to(device), use_cache=False).logits[:, :-1]
    following = scored[:, 1:].to(logits.device)
    targets = ids[:, 1:].to(logits.device)[following]
    losses = nn.functional.cross_entropy(logits[following].float(), targets, reduction="none")
    totals = torch.zeros(len(rows), device=logits.device).index_add(0, following.nonzero()[:, 0], -losses)
    return totals, following.sum(dim=1)


def scale_and_bias(head: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the scale of the class scores, which is positive and begins at 1, and the bias (2,) of the classes."""
    return torch.exp(HEAD_RATE * head[0]), HEAD_RATE * head[1:]


def train_guide(
    model: Any,
    tokenizer: Any,
    texts: tuple[Sequence[str], Sequence[str]],
    codes: Codes,
    *,
    tokens: int,
    seed: int,
    workshop: Workshop,
) -> Made:
    """Train a guide on ``tokens`` tokens of wanted and unwanted ``texts``, and return its arrays.

    Each text is read under both codes. The loss is (1 - λ) times the cross-entropy of its class, whose logits are the
    mean log-likelihoods of its tokens, scaled and shifted by learned numbers, plus λ times the negative mean
    log-likelihood under the code of its own class.

    Returns
    -------
    facts, arrays
        The arrays are those of the adapter, and "class" (3,), the argument of `scale_and_bias`.
    """
    rows, labels = _examples(model, tokenizer, texts, codes, tokens)
    batches = _batches([len(row) for row in rows], seed)
    adapted = with_adapters(model, {GUIDE: None}, seed=seed)
    device, padding = entry_device(model), pad_id(model, tokenizer)
    head = {"class": nn.Parameter(torch.zeros(3, device=device))}

    def loss_of(step: int) -> torch.Tensor:
        pairs = [codes.before(rows[i]) for i in batches[step]]
        coded = [row for both, _ in pairs for row in both]
        totals, counts = log_likelihoods(
            adapted, coded, [start for _, both in pairs for start in both], padding=padding
        )
        means = (totals / counts).reshape(-1, 2)
        truth = torch.tensor([labels[i] for i in batches[step]], device=means.device)
        scale, bias = scale_and_bias(head["class"])
        scores = scale * means + bias
        generative = -means.gather(1, truth[:, None]).mean()
        return (1 - GENERATIVE) * nn.functional.cross_entropy(scores, truth) + GENERATIVE * generative

    with trainable(adapted, GUIDE) as parameters:
        label = "training the guide"
        options: dict[str, Any] = {"steps": len(batches), "learning_rate": LEARNING_RATE}
        loss = train({**parameters, **head}, loss_of, workshop=workshop, label=label, **options)
    scale, bias = scale_and_bias(head["class"].detach())
    learned = {"scale": round(scale.item(), 4), "bias": [round(b, 4) for b in bias.tolist()]}
    facts = {**learned, "tokens": sum(map(len, rows)), "steps": len(batches), "last_loss": round(loss, 4)}
    return facts, {**adapter_arrays(adapted, GUIDE), "class": head["class"].numpy(force=True)}


def _examples(
    model: Any, tokenizer: Any, texts: tuple[Sequence[str], Sequence[str]], codes: Codes, tokens: int
) -> tuple[list[Tokens], list[int]]:
    """Return the first texts of both classes, in turn, until they have ``tokens`` tokens; 0 is the wanted class."""
    longest = min(LONGEST, context_length(model, tokenizer) - codes.longest)
    rows: list[Tokens] = []
    labels: list[int] = []
    count = 0
    for pair in zip(*texts, strict=False):
        if count >= tokens:
            break
        for label, row in enumerate(encode(model, tokenizer, list(pair), max_length=longest, caller="gedi")):
            if row != [codes.begin]:
                rows.append(row)
                labels.append(label)
                count += len(row)
    if not rows:
        raise DataError(
            f"There are {len(texts[0])} wanted and {len(texts[1])} unwanted texts, and tokens={tokens}; a guide needs "
            "texts of both, and tokens=1 or more."
        )
    return rows, labels


def _batches(lengths: Sequence[int], seed: int) -> list[list[int]]:
    """Return batches of texts of similar length, in a seeded order."""
    rng = np.random.default_rng(seed)
    # the noise mixes the classes and lengths a little
    order = np.argsort(np.array(lengths) + rng.uniform(0, 4, len(lengths)), kind="stable")
    batches = [order[i : i + BATCH].tolist() for i in range(0, len(order), BATCH)]
    return [batches[i] for i in rng.permutation(len(batches))]
