"""Log-likelihoods of continuations after their prompts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from repsurgery.errors import ParameterError, TextError
from repsurgery.lm.batching.batches import entry_device, evaluating, map_batches
from repsurgery.lm.batching.tokens import Tokens, check_texts, encode, pad, pad_id
from repsurgery.lm.steer.positions import Positions, Texts
from repsurgery.lm.steer.steer import optional_steer
from repsurgery.lm.steer.texts import reading_texts

__all__ = ["LogLikelihood", "log_likelihoods", "logits_of", "shared_length"]


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
        See `steer` and `generate`. Positions count from the border between prompt and continuation, as in
        `generate`; "assistant" is refused, because the turns of a conversation are unknown.
    batch_size : int
        Texts per pass; halved, with a warning, if memory is exhausted.
    progress : bool

    Guarantees
    ----------
    The positions that are steered are those that `generate` steers
    (test_log_likelihoods_are_those_of_the_steps_that_generation_steers).
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
        logits = logits_of(model, tokenizer, [whole[i] for i in batch], [starts[i] for i in batch])
        return [score(row, i) for row, i in zip(logits, batch, strict=True)]

    with evaluating(model), optional_steer(model, steering, strength=strength, positions=positions):
        return map_batches(list(map(len, whole)), run, batch_size=batch_size, progress=progress, label="scoring")


def logits_of(model: nn.Module, tokenizer: Any, rows: list[Tokens], prompts: Texts | Sequence[int]) -> torch.Tensor:
    """Return the logits (n, longest, vocabulary) of the whole model on rows of tokens, padded on the right.

    ``prompts`` are the lengths of the rows' prompts, see `reading_texts`.
    """
    ids, mask = pad(rows, token=pad_id(model, tokenizer), side="right")
    device = entry_device(model)
    with reading_texts(prompts):
        logits: torch.Tensor = model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits
    return logits[:, -ids.shape[1] :]  # prompt tuning puts virtual tokens before the text


def shared_length(head: Tokens, whole: Tokens) -> int:
    """Return how many tokens at the start of ``head`` and ``whole`` are equal."""
    pairs = zip(head, whole, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(head), len(whole)))
