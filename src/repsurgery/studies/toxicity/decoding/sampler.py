"""`sample`: the one loop in which every rival of steering writes, with the noise that steering uses."""

from collections.abc import Sequence
from typing import Protocol

import torch

from repsurgery.lm.batching.tokens import Tokens, pad
from repsurgery.lm.generate.sampling import draw

__all__ = ["Decoder", "nucleus", "sample"]


class Decoder(Protocol):
    """A method at work on one batch: what it says about the next token after the prompts, and after each new token."""

    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, vocabulary) after prompts (n, length), which are padded on the left."""

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, vocabulary) after one more token (n,) of each row."""


def sample(
    decoder: Decoder,
    rows: Sequence[Tokens],
    keys: Sequence[bytes],
    *,
    tokens: int,
    ends: Sequence[int],
    padding: int,
    top_p: float,
    temperature: float,
    device: torch.device | str = "cpu",
) -> list[Tokens]:
    """Return the tokens that continue each row; those after an end token have no meaning.

    Parameters
    ----------
    decoder : Decoder
    rows : sequence of lists of tokens
    keys : sequence of bytes
        One per row. The noise depends on key and step alone, as in `lm.generate`: rows of equal keys are paired.
    tokens : int
        The largest number of new tokens.
    ends : sequence of int
        Tokens that end a text.
    padding : int
    top_p, temperature : float

    Guarantees
    ----------
    A plain model writes what `lm.generate` writes (test_a_plain_model_writes_what_generate_writes).
    """
    ids, mask = pad(rows, token=padding, side="left")
    logits = decoder.read(ids.to(device), mask.to(device))
    ended = torch.zeros(len(rows), dtype=torch.bool, device=logits.device)
    final = torch.tensor(list(ends), dtype=torch.long, device=logits.device)
    drawn: list[torch.Tensor] = []
    for step in range(tokens):
        if step:
            logits = decoder.step(drawn[-1])
        token = draw(logits, keys, step, top_p=top_p, temperature=temperature).masked_fill(ended, padding)
        drawn.append(token)
        ended |= torch.isin(token, final)
        if ended.all():
            break
    whole: list[Tokens] = torch.stack(drawn, dim=1).tolist()
    return whole


def nucleus(logits: torch.Tensor, top_p: float, temperature: float) -> torch.Tensor:
    """Return which tokens (n, vocabulary) lie in the nucleus: all more probable tokens together have less than top_p.

    Guarantees
    ----------
    A token that `race` draws with ``top_p`` lies in it (test_the_mask_of_the_nucleus_is_the_nucleus_of_the_race).
    """
    p = torch.softmax(logits / temperature, dim=-1)
    if top_p >= 1:
        return torch.ones_like(p, dtype=torch.bool)
    ordered = p.sort(dim=-1, descending=True).values
    before = ordered.cumsum(dim=-1) - ordered
    # equally probable tokens are in it together
    smallest = ordered.masked_fill(before >= top_p, torch.inf).amin(dim=-1, keepdim=True)
    return p >= smallest
