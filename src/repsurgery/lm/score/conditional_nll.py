"""Negative log-likelihoods of many continuations per prompt, from which conditional perplexity is computed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import DynamicCache, DynamicLayer

from repsurgery.errors import ParameterError
from repsurgery.lm.batching.batches import entry_device, evaluating, map_batches
from repsurgery.lm.batching.tokens import Tokens, check_texts, encode, pad, pad_id
from repsurgery.lm.score.likelihood import shared_length
from repsurgery.lm.sites.wrappers import virtual_tokens
from repsurgery.lm.steer.texts import reading_texts

__all__ = ["Surprise", "surprises"]


@dataclass(frozen=True, slots=True)
class Surprise:
    """NLL(prompt + continuation) - NLL(prompt) of one continuation in nats, and the number of tokens that it adds.

    Both texts are tokenised as whole strings, as is usual for RealToxicityPrompts. A continuation may add no token, or
    even reduce their number where it merges with the prompt's last token; its perplexity is then undefined.
    """

    nll: float
    tokens: int


def surprises(
    model: nn.Module,
    tokenizer: Any,
    prompts: Sequence[str],
    continuations: Sequence[Sequence[str]],
    *,
    progress: bool = True,
) -> list[list[Surprise]]:
    """Return the `Surprise` of each continuation of each prompt, in order.

    Tokens that the continuations of one prompt share are read once. Under an open `steer` block the positions that
    `generate` steers are steered.

    Parameters
    ----------
    model, tokenizer
        A transformers decoder and its tokenizer; neither is changed.
    prompts : sequence of n strings
    continuations : sequence of n sequences of strings
        They may be empty.

    Guarantees
    ----------
    Equal to reading prompt and whole text apart (test_surprises_are_differences_of_whole_texts).
    """
    prompts = check_texts(prompts, caller="surprises")
    if len(prompts) != len(continuations):
        raise ParameterError(
            f"surprises got {len(prompts)} prompts and {len(continuations)} lists of continuations; give one "
            "list per prompt."
        )
    heads = encode(model, tokenizer, prompts, max_length=None, caller="surprises")

    def run(batch: list[int]) -> list[list[Surprise]]:
        return [_of_one(model, tokenizer, heads[i], [prompts[i] + text for text in continuations[i]]) for i in batch]

    with evaluating(model):
        return map_batches(list(map(len, heads)), run, batch_size=1, progress=progress, label="judging fluency")


def _of_one(model: Any, tokenizer: Any, head: Tokens, texts: list[str]) -> list[Surprise]:
    if not texts:
        return []
    wholes = encode(model, tokenizer, texts, max_length=None, caller="surprises")
    prompts = [shared_length(head, whole) for whole in wholes]
    shared = min(prompts)
    # the prompt itself is one more row: where its last token merges, its tokens are not a prefix of the whole text's
    *sums, own = _nll_after(model, tokenizer, [*wholes, head], [*prompts, len(head)], shared)
    return [Surprise(total - own, len(whole) - len(head)) for total, whole in zip(sums, wholes, strict=True)]


def _nll_after(model: Any, tokenizer: Any, rows: list[Tokens], prompts: list[int], shared: int) -> list[float]:
    """Return the negative log-likelihood of each row's tokens after the first ``shared``, in which all rows agree.

    ``prompts`` are the lengths of the rows' prompts, none of them less than ``shared``.
    """
    device, start = entry_device(model), max(shared - 1, 0)
    with reading_texts([shared]):
        cache = _cache_of(model, rows[0][:start], len(rows))
    start = 0 if cache is None else start
    ids, mask = pad([row[start:] for row in rows], token=pad_id(model, tokenizer), side="right")
    whole = torch.cat([torch.ones(len(rows), start, dtype=mask.dtype), mask], dim=1)
    inputs = {"input_ids": ids.to(device), "attention_mask": whole.to(device)}
    cached = {} if cache is None else {"past_key_values": cache}
    with reading_texts(prompts):
        logits = model(**inputs, **cached, use_cache=cache is not None).logits
    logits = logits[:, -ids.shape[1] :]  # prompt tuning puts virtual tokens before the text
    sums = []
    for row, scores in zip(rows, logits, strict=True):
        first = max(shared, 1) - start
        new = torch.tensor(row[start + first :], dtype=torch.long, device=logits.device)
        log_p = scores[first - 1 : first - 1 + len(new)].float().log_softmax(dim=-1)
        sums.append(-float(log_p.gather(1, new[:, None]).double().sum()))
    return sums


def _cache_of(model: Any, prefix: Tokens, rows: int) -> DynamicCache | None:
    if not prefix or virtual_tokens(model):
        return None
    ids = torch.tensor([prefix], device=entry_device(model))
    cache: Any = getattr(model(input_ids=ids, use_cache=True), "past_key_values", None)
    if type(cache) is not DynamicCache or not all(type(layer) is DynamicLayer for layer in cache.layers):
        return None
    cache.batch_repeat_interleave(rows)
    repeated: DynamicCache = cache
    return repeated
