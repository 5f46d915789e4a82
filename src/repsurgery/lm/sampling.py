"""Sampling whose noise belongs to the sample, not to the batch: Gumbel-max with keyed noise."""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LogitsProcessor

__all__ = ["KeyedSampling", "nucleus", "sample_key"]

CANDIDATES = 4096
"""So many tokens nearly always hold the nucleus, and finding them costs a quarter of sorting a vocabulary."""


def sample_key(seed: int, prompt: str, occurrence: int, sample: int) -> bytes:
    """Return what identifies one sample of one prompt; ``occurrence`` tells equal prompts of a list apart."""
    return hashlib.sha256(f"{seed}|{occurrence}|{sample}|{prompt}".encode()).digest()


class KeyedSampling(LogitsProcessor):
    """Turn greedy decoding into sampling: temperature, top-p, then Gumbel noise keyed by (key, step).

    argmax(log p + Gumbel noise) is a draw from p. Placed last, with ``do_sample=False``, the model's own argmax makes
    the draw; the noise of a row depends on its key and step alone, so neither its batch nor its place in it matters.

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
        """Return scores (n, vocabulary) whose argmax is the sampled token."""
        step = input_ids.shape[1] - self._prompt_length
        wanted: torch.Tensor = scores / self._temperature
        if self._top_p < 1:
            wanted = nucleus(wanted, self._top_p)
        noise = np.stack([_gumbel(key, step, scores.shape[1]) for key in self._keys])
        drawn: torch.FloatTensor = wanted.double() + torch.from_numpy(noise).to(scores.device)  # type: ignore[assignment]
        return drawn


def nucleus(scores: torch.Tensor, top_p: float) -> torch.Tensor:
    """Return scores (n, vocabulary) with -inf outside the nucleus: tokens whose betters hold less than ``top_p``.

    Guarantees
    ----------
    The nucleus is that of transformers, whatever the number of candidates (test_the_nucleus_is_that_of_transformers).
    """
    size, vocabulary = min(CANDIDATES, scores.shape[1]), scores.shape[1]
    log_total = scores.logsumexp(dim=-1, keepdim=True)
    while True:
        best, index = scores.topk(size, dim=-1)
        share = (best - log_total).exp()
        betters = share.cumsum(dim=-1) - share
        # the last candidate lies outside, so every token behind the candidates does too
        if size == vocabulary or bool((betters[:, -1] >= top_p).all()):
            break
        size = min(8 * size, vocabulary)
    kept = best.masked_fill(betters >= top_p, -torch.inf)
    kept[:, 0] = best[:, 0]
    return torch.full_like(scores, -torch.inf).scatter_(1, index, kept)


def _gumbel(key: bytes, step: int, size: int) -> NDArray[np.float64]:
    bits = np.random.Philox(key=int.from_bytes(hashlib.sha256(key + step.to_bytes(8, "big")).digest()[:16], "big"))
    noise: NDArray[np.float64] = -np.log(np.random.Generator(bits).standard_exponential(size))
    return noise
