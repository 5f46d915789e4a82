"""`Watched`: a decoder whose texts are measured by the perplexity that the unchanged model gives them."""

from collections.abc import Callable, Sequence

import torch

from repsurgery.lm.batching.tokens import Tokens
from repsurgery.lm.generate.generate import until_end
from repsurgery.studies.toxicity.decoding.sampler import Decoder

__all__ = ["Watched"]


class Watched:
    """Decodes as ``decoder`` does, and notes how probable the unchanged model finds each drawn token.

    Parameters
    ----------
    decoder : Decoder
    base : function of the decoder's logits
        Returns the logits (n, vocabulary) of the unchanged model for the same token. No extra pass is needed where the
        decoder computes them anyway.

    Guarantees
    ----------
    The perplexity is that of the whole text without a cache (test_the_perplexity_is_the_base_s_own).
    """

    def __init__(self, decoder: Decoder, base: Callable[[torch.Tensor], torch.Tensor] = lambda logits: logits) -> None:
        self._decoder, self._base = decoder, base
        self._log_u = torch.empty(0)
        self._nll: list[torch.Tensor] = []

    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Read prompts, as the decoder does."""
        return self._noted(self._decoder.read(ids, mask))

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Read one more token of each row, as the decoder does."""
        self._nll.append(self._surprise(tokens))
        return self._noted(self._decoder.step(tokens))

    def perplexities(self, drawn: Sequence[Tokens], ends: Sequence[int]) -> list[float]:
        """Return the perplexity of each of the continuations ``drawn`` by this decoder, the end token included."""
        last = torch.tensor([row[-1] for row in drawn], device=self._log_u.device)
        nll = torch.stack([*self._nll, self._surprise(last)], dim=1).double()
        texts = (until_end(row, list(ends)) for row in drawn)
        lengths = [len(tokens) + finished for tokens, finished in texts]
        return [float(row[:length].mean().exp()) for row, length in zip(nll, lengths, strict=True)]

    def _noted(self, logits: torch.Tensor) -> torch.Tensor:
        self._log_u = self._base(logits).log_softmax(dim=-1)
        return logits

    def _surprise(self, tokens: torch.Tensor) -> torch.Tensor:
        return -self._log_u.gather(1, tokens[:, None])[:, 0]
