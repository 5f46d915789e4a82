"""Log-likelihoods of continuations, and the divergence of the steered next-token distribution from the base one."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import nn

from repsurgery.errors import NonFiniteError, ParameterError, TextError
from repsurgery.lm.batching import Tokens, check_texts, encode, entry_device, evaluating, map_batches, pad, pad_id
from repsurgery.lm.generate.generate import Generation, predicting_positions
from repsurgery.lm.steer.placing import fixed_sites
from repsurgery.lm.steer.positions import Positions
from repsurgery.lm.steer.steer import optional_steer, steer

__all__ = ["Direction", "Divergence", "LogLikelihood", "kl_divergence", "log_likelihoods", "shared_length"]

Direction = Literal["steered-base", "base-steered"]
"""KL(steered ‖ base), or KL(base ‖ steered), which `Fisher.kl` predicts; for small steps they agree."""


@dataclass(frozen=True, slots=True)
class LogLikelihood:
    """The log-likelihood of a continuation after its prompt, token by token, in nats.

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
    """KL(steered ‖ base), or KL(base ‖ steered), of the next-token distributions along one text, in nats.

    Attributes
    ----------
    text : str
    tokens : tuple of int
    values : tuple of float
        Of a text, one per token: the divergence of the predictions of the next token. Of a generation, one per step:
        the divergence of the predictions from which its tokens, and its end token, were drawn.
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
    the merged token belongs to the continuation.

    Parameters
    ----------
    model, tokenizer
        A transformers decoder and its tokenizer; neither is changed.
    prompts, continuations : sequences of n strings
    steering, strength, positions
        See `steer` and `generate`.
    batch_size : int
        Texts per pass; halved, with a warning, if memory is exhausted.
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
    starts = [shared_length(head, tokens) for head, tokens in zip(heads, whole, strict=True)]
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

    def run(batch: list[int]) -> list[LogLikelihood]:
        logits = _logits(model, tokenizer, [whole[i] for i in batch])
        return [score(row, i) for row, i in zip(logits, batch, strict=True)]

    with evaluating(model), optional_steer(model, steering, strength=strength, positions=positions):
        return map_batches(list(map(len, whole)), run, batch_size=batch_size, progress=progress, label="scoring")


def kl_divergence(
    model: nn.Module,
    tokenizer: Any,
    texts: Sequence[str] | Sequence[Generation],
    steering: Any,
    *,
    strength: float | None = None,
    positions: Positions | None = None,
    direction: Direction = "steered-base",
    max_length: int | None = None,
    batch_size: int = 4,
    progress: bool = True,
) -> list[Divergence]:
    """Return the divergence between steered and base next-token distributions along each text, in order.

    Parameters
    ----------
    model, tokenizer
        A transformers decoder and its tokenizer; neither is changed.
    texts : sequence of n strings or of n `Generation`
        Of generations only the steps that wrote them count, not their prompts.
    steering, strength, positions
        See `steer` and `generate`.
    direction : {"steered-base", "base-steered"}
        KL(steered ‖ base), or KL(base ‖ steered), the price that `Fisher.kl` predicts.
    max_length, batch_size, progress
        As in `extract`; generations are never truncated.

    Guarantees
    ----------
    The values along a generation are those along its text with its prompt
    (test_the_divergence_along_a_generation_is_that_of_its_steps).
    """
    if direction not in get_args(Direction):
        raise ParameterError(f"direction is {direction!r}; it must be one of {list(get_args(Direction))}.")
    if steering is None:
        raise ParameterError("kl_divergence got steering=None; give the steering to be compared with the base model.")
    sites = fixed_sites(model, steering, strength=strength, positions=positions)
    tokens, steps, shown = _read(model, tokenizer, texts, max_length)

    def divergence(steered: torch.Tensor, base: torch.Tensor, i: int) -> Divergence:
        pair = (steered, base) if direction == "steered-base" else (base, steered)
        log_p, log_q = (x[steps[i]].float().log_softmax(dim=-1) for x in pair)
        values = (log_p.exp() * (log_p - log_q)).sum(dim=-1).tolist()
        if not all(map(math.isfinite, values)):
            raise NonFiniteError(
                "kl_divergence got logits beyond the model's number range: the steered state overflows in the output "
                "layer. Lower the strength, or run the model in a wider dtype."
            )
        return Divergence(*shown[i], tuple(values))

    def run(batch: list[int]) -> list[Divergence]:
        rows = [tokens[i] for i in batch]
        base = _logits(model, tokenizer, rows)
        with steer(model, sites):
            steered = _logits(model, tokenizer, rows)
        return [divergence(steered[row], base[row], i) for row, i in enumerate(batch)]

    with evaluating(model):
        return map_batches(list(map(len, tokens)), run, batch_size=batch_size, progress=progress, label="comparing")


def _read(
    model: nn.Module, tokenizer: Any, texts: Sequence[Any], max_length: int | None
) -> tuple[list[Tokens], list[slice], list[tuple[str, tuple[int, ...]]]]:
    """Return the tokens to read, the positions whose predictions count, and what is shown: text and tokens."""
    if not isinstance(texts, str) and texts and all(isinstance(text, Generation) for text in texts):
        rows, steps = predicting_positions(model, tokenizer, texts, caller="kl_divergence")
        return rows, steps, [(g.text, g.tokens) for g in texts]
    texts = check_texts(texts, caller="kl_divergence")
    rows = encode(model, tokenizer, texts, max_length=max_length, caller="kl_divergence")
    return rows, [slice(len(row)) for row in rows], [(text, tuple(row)) for text, row in zip(texts, rows, strict=True)]


def _logits(model: Callable[..., Any], tokenizer: Any, rows: list[Tokens]) -> torch.Tensor:
    assert isinstance(model, nn.Module)
    ids, mask = pad(rows, token=pad_id(model, tokenizer), side="right")
    device = entry_device(model)
    logits: torch.Tensor = model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits
    return logits[:, -ids.shape[1] :]  # prompt tuning puts virtual tokens before the text


def shared_length(head: Tokens, whole: Tokens) -> int:
    """Return how many tokens at the start of ``head`` and ``whole`` are equal."""
    pairs = zip(head, whole, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(head), len(whole)))
