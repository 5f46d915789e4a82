"""`Lookahead`: passes of one token that allow gradients, and what the head says about the token expected after it."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from transformers.cache_utils import DynamicCache

from repsurgery.errors import ModelError
from repsurgery.lm.generate.decode_pass import is_plain_cache
from repsurgery.lm.sites.names import reading_model, resolve_site
from repsurgery.lm.sites.wrappers import unwrapped
from repsurgery.lm.steer.hooks import attach
from repsurgery.studies.toxicity.decoding.cached_model import CachedModel
from repsurgery.studies.toxicity.decoding.head import Head

__all__ = ["KeysAndValues", "Lookahead", "Passed", "fused", "require_full_attention"]

KeysAndValues = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values (n, heads, length, width) of each block; empty before the first token."""


class Passed(NamedTuple):
    """What one token of each row gave.

    Attributes
    ----------
    logits : (n, vocabulary) tensor
    state : (n, d) tensor
        The final state.
    past : keys and values up to and including this token
    """

    logits: torch.Tensor
    state: torch.Tensor
    past: KeysAndValues

    def detached(self) -> "Passed":
        """Return the same without gradients."""
        return Passed(self.logits.detach(), self.state.detach(), [(k.detach(), v.detach()) for k, v in self.past])


class Lookahead(CachedModel):
    """The unchanged model's view of rows whose last token is about to be passed, possibly changed.

    Attributes
    ----------
    past : keys and values of all tokens but the last
    mask : (n, T) tensor
        Which of the T positions, the last one included, hold tokens.
    sums : (n, d) tensor
        The sum of the final states of all tokens but the last.

    Guarantees
    ----------
    Logits and the head's probability are those without a cache (test_the_lookahead_is_that_of_the_whole_text).
    """

    def __init__(self, model: Any, head: Head) -> None:
        super().__init__(model)
        inner = unwrapped(model)
        self.head, self.past, self.sums = head, KeysAndValues(), torch.zeros(())
        self._final, self._reading = resolve_site(inner, "final"), reading_model(inner)
        self._embeddings: Any = inner.get_input_embeddings()  # type: ignore[operator]
        self._takes_positions = "position_ids" in inspect.signature(self._reading.forward).parameters

    def start(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Read all but the last token of rows (n, length) padded on the left; return the last ones (n,)."""
        if ids.shape[1] > 1:
            before = mask[:, :-1]
            with self._final_states() as states:
                super().read(ids[:, :-1], before)
            self.past = _keys_and_values(self.cache, self.model)
            self.sums = (states[0][self.rows] * before[..., None]).sum(dim=1)
        self.mask = mask
        return ids[:, -1]

    def last(self, tokens: torch.Tensor, past: KeysAndValues) -> Passed:
        """Pass the last token (n,) of each row after keys and values ``past`` of those before it."""
        cache = {"past_key_values": DynamicCache(past)} if past else {}
        with self._final_states() as states:
            output = self._forward(tokens[:, None], self.mask, [], **cache)
        past = _keys_and_values(output.past_key_values, self.model)
        return Passed(output.logits[:, -1].float(), states[0][:, -1], past)

    def log_p(self, seen: Passed, past: KeysAndValues) -> torch.Tensor:
        """Return the head's log P(target) (n,) of the text with its last token and one soft token.

        The soft token is the mean of the embeddings under ``seen.logits``, read after ``past``; the head takes the mean
        over the final states of the text, of which that of the last token is a constant, and of the soft token.

        Parameters
        ----------
        seen : Passed
            The last token's logits and state.
        past : keys and values of the T tokens of each row
        """
        weight = self._embeddings.weight.detach()
        soft = seen.logits.softmax(dim=-1).to(weight.dtype)[:, None] @ weight
        soft = soft * getattr(self._embeddings, "embed_scale", 1.0)  # Gemma's embeddings are scaled
        mask = torch.cat([self.mask, torch.ones_like(self.mask[:, :1])], dim=1)
        length = mask.sum(dim=1, keepdim=True)
        positions = {"position_ids": length - 1} if self._takes_positions else {}
        cache = DynamicCache(past)
        with self._final_states() as states:
            self._reading(inputs_embeds=soft, attention_mask=mask, past_key_values=cache, use_cache=True, **positions)
        return self.head.log_p((self.sums + seen.state.detach() + states[0][:, -1]) / length)

    def accept(self, clean: Passed) -> None:
        """Count the last token as read, given what it gave in the unchanged model; another one follows it."""
        self.past, self.sums = clean.past, self.sums + clean.state
        self.mask = torch.cat([self.mask, torch.ones_like(self.mask[:, :1])], dim=1)

    @contextmanager
    def _final_states(self) -> Iterator[list[torch.Tensor]]:
        """Collect the final states (n, length, d) of the passes in the block."""
        states: list[torch.Tensor] = []
        handle = attach(self._final, states.append)
        try:
            yield states
        finally:
            handle.remove()


def require_full_attention(model: Any, name: str) -> None:
    """Raise a `ModelError` that names the configuration ``name`` unless the model has full attention in every block."""
    inner = unwrapped(model)
    if not is_plain_cache(DynamicCache(config=inner.config)):
        raise ModelError(
            f"{name!r} needs keys and values of every position, and {type(inner).__name__} has sliding windows or "
            "recurrent states. Leave this line out, or use a model with full attention in every block."
        )


def fused(changed: torch.Tensor, clean: torch.Tensor, share: float) -> torch.Tensor:
    """Return the logarithm of p^share u^(1 - share), up to a constant per row; both logits are (n, vocabulary)."""
    return share * changed.log_softmax(dim=-1) + (1 - share) * clean.log_softmax(dim=-1)


def _keys_and_values(cache: Any, model: Any) -> KeysAndValues:
    if not is_plain_cache(cache):
        raise ModelError(
            f"{type(unwrapped(model)).__name__} keeps something else than keys and values of every position: it has "
            "sliding windows or recurrent states. This method changes keys and values one by one, so use a model with "
            "full attention in every block."
        )
    return [(layer.keys, layer.values) for layer in cache.layers]
