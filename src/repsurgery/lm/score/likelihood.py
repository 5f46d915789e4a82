"""Score texts: log-likelihoods of continuations, and how far steering moves the next-token distribution."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from repsurgery.errors import NonFiniteError, ParameterError, TextError
from repsurgery.lm.batching import entry_device, evaluating, run_batches
from repsurgery.lm.generate.generate import steered
from repsurgery.lm.steer.placing import settled
from repsurgery.lm.steer.positions import Positions
from repsurgery.lm.steer.steer import steer
from repsurgery.lm.texts import Tokens, check_texts, encode, pad, pad_id, sorted_batches

__all__ = ["Divergence", "LogLikelihood", "kl_divergence", "log_likelihoods"]


@dataclass(frozen=True, slots=True)
class LogLikelihood:
    """How likely a continuation is after its prompt, token by token, in nats.

    Attributes
    ----------
    prompt, continuation : str
    tokens : tuple of int
        The continuation's tokens.
    values : tuple of float
        log p(token | everything before it), one per token.
    """

    prompt: str
    continuation: str
    tokens: tuple[int, ...]
    values: tuple[float, ...]

    @property
    def total(self) -> float:
        """The sum over tokens: log p(continuation | prompt)."""
        return float(sum(self.values))


@dataclass(frozen=True, slots=True)
class Divergence:
    """KL(steered ‖ base) of the next-token distributions along one text, in nats.

    Attributes
    ----------
    text : str
    tokens : tuple of int
    values : tuple of float
        One per token: the divergence of what is predicted behind it.
    """

    text: str
    tokens: tuple[int, ...]
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over tokens."""
        return float(sum(self.values) / len(self.values))


def log_likelihoods(
    model: nn.Module,
    tokenizer: Any,
    prompts: Sequence[str],
    continuations: Sequence[str],
    *,
    steering: Any = None,
    strength: float | None = None,
    positions: Positions | None = None,
    batch_size: int = 8,
    progress: bool = True,
) -> list[LogLikelihood]:
    """Return the log-likelihood of each continuation after its prompt, in order.

    Prompt and continuation are tokenised together; where the last token of the prompt merges with the continuation,
    that merged token counts to the continuation.

    Parameters
    ----------
    model, tokenizer
        A transformers decoder and its tokenizer; neither is changed.
    prompts, continuations : sequences of n strings
    steering, strength, positions
        See `steer` and `generate`.
    batch_size : int
        Texts at once; halved, with a warning, where memory ends.
    progress : bool
    """
    prompts = check_texts(prompts, caller="log_likelihoods")
    continuations = check_texts(continuations, caller="log_likelihoods")
    if len(prompts) != len(continuations):
        raise ParameterError(
            f"log_likelihoods got {len(prompts)} prompts and {len(continuations)} continuations; give one for each."
        )
    joint = [prompt + continuation for prompt, continuation in zip(prompts, continuations, strict=True)]
    whole = encode(model, tokenizer, joint, max_length=None, caller="log_likelihoods")
    heads = encode(model, tokenizer, prompts, max_length=None, caller="log_likelihoods")
    starts = [_shared(head, tokens) for head, tokens in zip(heads, whole, strict=True)]
    for i, (start, tokens) in enumerate(zip(starts, whole, strict=True)):
        if start == 0 or start == len(tokens):
            raise TextError(
                f"log_likelihoods has nothing to condition on, or nothing to score, at index {i}: {start} of "
                f"{len(tokens)} tokens are the prompt's. Give a longer prompt, or another continuation."
            )

    def score(logits: torch.Tensor, i: int) -> LogLikelihood:
        start, tokens = starts[i], torch.tensor(whole[i], device=logits.device)
        log_p = logits[start - 1 : len(tokens) - 1].float().log_softmax(dim=-1)
        values = log_p.gather(1, tokens[start:, None])[:, 0].tolist()
        return LogLikelihood(prompts[i], continuations[i], tuple(whole[i][start:]), tuple(values))

    found: dict[int, LogLikelihood] = {}

    def run(batch: list[int]) -> None:
        logits = _logits(model, tokenizer, [whole[i] for i in batch])
        found.update({i: score(logits[row], i) for row, i in enumerate(batch)})

    with evaluating(model), steered(model, steering, strength=strength, positions=positions):
        run_batches(sorted_batches(list(map(len, whole)), batch_size), run, progress=progress, label="scoring")
    return [found[i] for i in range(len(whole))]


def kl_divergence(
    model: nn.Module,
    tokenizer: Any,
    texts: Sequence[str],
    steering: Any,
    *,
    strength: float | None = None,
    positions: Positions | None = None,
    max_length: int | None = None,
    batch_size: int = 4,
    progress: bool = True,
) -> list[Divergence]:
    """Return KL(steered ‖ base) of the next-token distributions along each text, in order.

    Parameters
    ----------
    model, tokenizer
        A transformers decoder and its tokenizer; neither is changed.
    texts : sequence of n strings
    steering, strength, positions
        See `steer` and `generate`.
    max_length, batch_size, progress
        As in `extract`.
    """
    texts = check_texts(texts, caller="kl_divergence")
    if steering is None:
        raise ParameterError("kl_divergence got steering=None; give the steering whose effect is to be measured.")
    sites = settled(model, steering, strength=strength, positions=positions)
    tokens = encode(model, tokenizer, texts, max_length=max_length, caller="kl_divergence")
    found: dict[int, Divergence] = {}

    def run(batch: list[int]) -> None:
        rows = [tokens[i] for i in batch]
        base = _logits(model, tokenizer, rows)
        with steer(model, sites):
            moved = _logits(model, tokenizer, rows)
        for row, i in enumerate(batch):
            n = len(tokens[i])
            log_p, log_q = (x[row, :n].float().log_softmax(dim=-1) for x in (moved, base))
            values = (log_p.exp() * (log_p - log_q)).sum(dim=-1).tolist()
            if not all(map(math.isfinite, values)):
                raise NonFiniteError(
                    "kl_divergence met logits beyond the model's number range: the steered state overflows in the "
                    "output layer. Lower the strength, or run the model in a wider dtype."
                )
            found[i] = Divergence(texts[i], tuple(tokens[i]), tuple(values))

    with evaluating(model):
        run_batches(sorted_batches(list(map(len, tokens)), batch_size), run, progress=progress, label="comparing")
    return [found[i] for i in range(len(texts))]


def _logits(model: Callable[..., Any], tokenizer: Any, rows: list[Tokens]) -> torch.Tensor:
    assert isinstance(model, nn.Module)
    ids, mask = pad(rows, token=pad_id(model, tokenizer), side="right")
    device = entry_device(model)
    logits: torch.Tensor = model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits
    return logits[:, -ids.shape[1] :]  # prompt tuning puts virtual tokens before the text


def _shared(head: Tokens, whole: Tokens) -> int:
    pairs = zip(head, whole, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(head), len(whole)))
