"""Sampling whose noise belongs to the sample, not to the batch: an exponential race with keyed noise."""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LogitsProcessor

__all__ = ["KeyedSampling", "race", "sample_key"]


def sample_key(seed: int, prompt: str, occurrence: int, sample: int) -> bytes:
    """Return what identifies one sample of one prompt; ``occurrence`` tells equal prompts of a list apart."""
    return hashlib.sha256(f"{seed}|{occurrence}|{sample}|{prompt}".encode()).digest()


class KeyedSampling(LogitsProcessor):
    """Turn greedy decoding into sampling: temperature, top-p, then a race whose noise is keyed by (key, step).

    Placed last, with ``do_sample=False``, the model's own argmax takes the token that won. The noise of a row depends
    on its key and step alone, so neither its batch nor its place in it matters.

    Parameters
    ----------
    keys : sequence of bytes
        One per row of the batch.
    prompt_length : int
        The padded length of the prompts: step 0 is the first token behind it.
    """

    def __init__(self, keys: Sequence[bytes], *, prompt_length: int, top_p: float, temperature: float) -> None:
        self._keys = keys
        self._prompt_length = prompt_length
        self._temperature = temperature
        self._top_p = top_p

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Return scores (n, vocabulary) whose argmax is the sampled token: 0 there, -inf elsewhere."""
        step = input_ids.shape[1] - self._prompt_length
        noise = np.stack([_exponential(key, step, scores.shape[1]) for key in self._keys])
        p = torch.softmax(scores / self._temperature, dim=-1)
        drawn = race(p, torch.from_numpy(noise).to(scores.device), self._top_p)
        sampled: torch.FloatTensor = torch.full_like(scores, -torch.inf).scatter_(1, drawn[:, None], 0.0)  # type: ignore[assignment]
        return sampled


def race(p: torch.Tensor, noise: torch.Tensor, top_p: float) -> torch.Tensor:
    """Return, per row, the token of the nucleus that arrives first when token i takes noise_i / p_i.

    With exponential noise that is a draw from p within the nucleus: the tokens whose betters hold less than ``top_p``.
    The winner among all tokens lies there most of the time, and asking so takes one sum; so nothing is ever sorted.

    Parameters
    ----------
    p, noise : (n, vocabulary) tensors
        Probabilities, and independent exponential numbers.

    Guarantees
    ----------
    The winner is the first of the nucleus of transformers (test_the_nucleus_is_that_of_transformers).
    """
    speed = p / noise
    drawn = speed.argmax(dim=-1)
    asked = torch.arange(len(p), device=p.device)
    while top_p < 1:
        own = p[asked].gather(1, drawn[asked, None])
        betters = torch.where(p[asked] > own, p[asked], 0.0).sum(dim=-1)
        asked = asked[betters >= top_p]
        if not len(asked):
            break
        speed[asked, drawn[asked]] = -1.0
        drawn[asked] = speed[asked].argmax(dim=-1)
    return drawn


def _exponential(key: bytes, step: int, size: int) -> NDArray[np.float32]:
    seed = int.from_bytes(hashlib.sha256(key + step.to_bytes(8, "big")).digest()[:16], "big")
    noise = np.random.Generator(np.random.SFC64(seed)).standard_exponential(size, dtype=np.float32)
    # a zero would let a token without probability win: 0 / 0
    return np.maximum(noise, np.finfo(np.float32).tiny, out=noise)
