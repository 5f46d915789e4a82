"""Sampling with noise that depends on the sample and not on its batch: an exponential race with keyed noise."""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LogitsProcessor

__all__ = ["KeyedSampling", "draw", "race", "sample_key"]


def sample_key(seed: int, prompt: str, occurrence: int, sample: int) -> bytes:
    """Return the key of one sample of one prompt; ``occurrence`` distinguishes equal prompts in a list."""
    return hashlib.sha256(f"{seed}|{occurrence}|{sample}|{prompt}".encode()).digest()


class KeyedSampling(LogitsProcessor):
    """Turn greedy decoding into sampling: temperature, top-p, then a race whose noise is keyed by (key, step).

    As the last processor, with ``do_sample=False``, it makes the model's own argmax return the sampled token. The noise
    of a row depends on its key and step alone, not on its batch or its index in it.

    Parameters
    ----------
    keys : sequence of bytes
        One per row of the batch.
    prompt_length : int
        The padded length of the prompts: step 0 is the first token after it.
    """

    def __init__(self, keys: Sequence[bytes], *, prompt_length: int, top_p: float, temperature: float) -> None:
        self._keys = keys
        self._prompt_length = prompt_length
        self._temperature = temperature
        self._top_p = top_p

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Return scores (n, vocabulary) whose argmax is the sampled token: 0 there, -inf elsewhere."""
        step = input_ids.shape[1] - self._prompt_length
        drawn = draw(scores, self._keys, step, top_p=self._top_p, temperature=self._temperature)
        sampled: torch.FloatTensor = torch.full_like(scores, -torch.inf).scatter_(1, drawn[:, None], 0.0)  # type: ignore[assignment]
        return sampled


def draw(
    scores: torch.Tensor,
    keys: Sequence[bytes],
    step: int | Sequence[int],
    *,
    top_p: float | Sequence[float],
    temperature: float | Sequence[float],
) -> torch.Tensor:
    """Return the token (n,) that each row of logits ``scores`` (n, vocabulary) draws at ``step`` with its key.

    ``step``, ``top_p`` and ``temperature`` are one value for all rows, or one for each.

    Guarantees
    ----------
    A row draws what it draws alone, whatever the settings of the others
    (test_rows_with_their_own_settings_draw_what_they_draw_alone).
    """
    steps = [step] * len(keys) if isinstance(step, int) else step
    noise = np.stack([_exponential(key, at, scores.shape[1]) for key, at in zip(keys, steps, strict=True)])
    heat = temperature if isinstance(temperature, float | int) else _column(temperature, scores)[:, None]
    nucleus = top_p if isinstance(top_p, float | int) else _column(top_p, scores)
    p = torch.softmax(scores / heat, dim=-1)
    return race(p, torch.from_numpy(noise).to(scores.device), nucleus)


def race(p: torch.Tensor, noise: torch.Tensor, top_p: float | torch.Tensor) -> torch.Tensor:
    """Return, per row, the token of the nucleus that arrives first when token i takes noise_i / p_i.

    With exponential noise this is a draw from p within the nucleus of mass ``top_p``: the tokens for which all more
    probable tokens together have less than ``top_p``. The first of all tokens usually lies in the nucleus, as one sum
    shows, so no sorting is needed.

    Parameters
    ----------
    p, noise : (n, vocabulary) tensors
        Probabilities, and independent exponential numbers.
    top_p : float or (n,) tensor
        For all rows, or for each.

    Guarantees
    ----------
    The result is the first token of the nucleus of transformers (test_the_nucleus_is_that_of_transformers).
    """
    speed = p / noise
    drawn = speed.argmax(dim=-1)
    mass = torch.as_tensor(top_p, dtype=p.dtype, device=p.device).expand(len(p))
    rows = (mass < 1).nonzero().squeeze(1)
    while len(rows):
        own = p[rows].gather(1, drawn[rows, None])
        more_probable = torch.where(p[rows] > own, p[rows], 0.0).sum(dim=-1)
        rows = rows[more_probable >= mass[rows]]
        speed[rows, drawn[rows]] = -1.0
        drawn[rows] = speed[rows].argmax(dim=-1)
    return drawn


def _column(values: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)


def _exponential(key: bytes, step: int, size: int) -> NDArray[np.float32]:
    seed = int.from_bytes(hashlib.sha256(key + step.to_bytes(8, "big")).digest()[:16], "big")
    noise = np.random.Generator(np.random.SFC64(seed)).standard_exponential(size, dtype=np.float32)
    # a zero would let a token without probability win: 0 / 0
    return np.maximum(noise, np.finfo(np.float32).tiny, out=noise)
