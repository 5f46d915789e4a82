"""Read states at several sites in one pass; they are pooled at once and never stored."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, Literal, Protocol, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from repsurgery.errors import NonFiniteError, ParameterError, ShapeError, SiteError, TextError
from repsurgery.lm.batching.batches import entry_device
from repsurgery.lm.batching.tokens import Tokens, pad, pad_id
from repsurgery.lm.chat import ChatText, chat_prompt, turns_of
from repsurgery.lm.sites.names import Site, reading_model, resolve_site
from repsurgery.lm.sites.wrappers import unwrapped, virtual_tokens
from repsurgery.lm.steer.hooks import Visit, attach
from repsurgery.lm.steer.texts import reading_texts
from repsurgery.lm.steer.torch_maps import to_rows

__all__ = [
    "Pooling",
    "Reader",
    "Turns",
    "check_pooling",
    "reader",
    "require_visited",
    "row_counts",
    "runner",
    "turns_to_read",
]

Pooling = Literal["last", "cls", "mean", "all"]
"""``last``: each text's last token. ``cls``: its first. ``mean``: the mean of its tokens. ``all``: every token.

Of a conversation that ends with the assistant's message, ``last`` is the last token of that message, before what the
template writes after it, and ``mean`` and ``all`` read the tokens of the assistant's turns only, see `assistant_turns`.
Of a conversation that ends with another message, ``last`` is the last token before the answer, and ``mean`` and
``all`` read every token.
"""

Turns = Sequence[list[bool] | None]
"""For each text, which of its tokens "mean" and "all" read; None for all of them."""


class Reader(Protocol):
    """Takes the tokens of some texts and returns, per site, their pooled states as rows (n, d)."""

    def __call__(
        self, rows: Sequence[Tokens], turns: Turns | None = None, /, prompts: Sequence[int] | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """Read ``rows``; "mean" and "all" use the tokens that ``turns`` marks.

        ``prompts`` are the lengths of the rows' prompts where they are known; otherwise a whole row is one.
        """


def check_pooling(pooling: Pooling, allowed: Sequence[str] = get_args(Pooling)) -> Pooling:
    """Return ``pooling``, or raise an error that lists the allowed values."""
    if pooling not in allowed:
        raise ParameterError(f"pooling is {pooling!r}; it must be one of {list(allowed)}.")
    return pooling


def turns_to_read(tokenizer: Any, texts: Sequence[str], tokens: Sequence[Tokens], pooling: Pooling) -> Turns | None:
    """Return which tokens of each text are read; None where these are all tokens of all texts."""
    answered = [isinstance(text, ChatText) and text.answered for text in texts]
    if pooling == "cls" or not any(answered):
        return None
    turns = [
        turns_of(tokenizer, text, len(row)) if chosen and _cut_or_pooled(tokenizer, text, row, pooling) else None
        for text, row, chosen in zip(texts, tokens, answered, strict=True)
    ]
    for i, mask in enumerate(turns):
        # the last position that is read must be the assistant's, too
        if mask is not None and not any(mask if pooling != "last" else mask[-1:]):
            raise TextError(
                f"The first {len(tokens[i])} tokens of the conversation at index {i} do not reach the turn of the "
                "assistant that is read. Raise max_length, or shorten the messages before it."
            )
    return turns if pooling != "last" else None


def _cut_or_pooled(tokenizer: Any, text: Any, row: Tokens, pooling: Pooling) -> bool:
    return pooling != "last" or len(row) < len(chat_prompt(tokenizer, text.messages))


def row_counts(tokens: Sequence[Tokens], turns: Turns | None, pooling: Pooling) -> list[int]:
    """Return how many rows each text gives."""
    if pooling != "all":
        return [1] * len(tokens)
    marks = turns or [None] * len(tokens)
    return [len(row) if mask is None else sum(mask) for row, mask in zip(tokens, marks, strict=True)]


@contextmanager
def reader(model: nn.Module, tokenizer: Any, sites: Sequence[str], pooling: Pooling) -> Iterator[Reader]:
    """Set hooks on ``sites`` while the block runs; the reader it yields makes one pass per call.

    Texts are padded on the right, whatever the tokenizer's own side: positions then count from 0 in every family, and
    causal attention never sees the padding. States of virtual tokens that PEFT puts before a text are skipped. The
    decoder of an encoder-decoder receives the same text as the encoder, shifted by its start token.
    """
    inner = unwrapped(model)
    resolved = [resolve_site(inner, name) for name in sites]
    run = runner(model, inner, resolved)
    virtual = virtual_tokens(model)
    padding = pad_id(inner, tokenizer)
    current: dict[str, NDArray[np.float32]] = {}
    mask = chosen = torch.empty(0)

    def visitor(name: str) -> Visit:
        def visit(state: torch.Tensor) -> None:
            # pooled at once, because some families add to the same tensor in place right afterwards
            current[name] = to_rows(_pooled(state, mask, chosen, pooling, name, virtual))

        return visit

    def read(
        rows: Sequence[Tokens], turns: Turns | None = None, /, prompts: Sequence[int] | None = None
    ) -> dict[str, NDArray[np.float32]]:
        nonlocal mask, chosen
        ids, mask = pad(rows, token=padding, side="right")
        chosen = mask
        if turns is not None:
            marks = [[1] * len(row) if marked is None else marked for row, marked in zip(rows, turns, strict=True)]
            chosen, _ = pad([list(map(int, row)) for row in marks], token=0, side="right")
        device = entry_device(inner)
        current.clear()
        with nullcontext() if prompts is None else reading_texts(prompts):
            run(input_ids=ids.to(device), attention_mask=mask.to(device))
        require_visited(resolved, current)
        _require_finite(current)
        return dict(current)

    with ExitStack() as stack:
        for site in resolved:
            stack.callback(attach(site, visitor(site.name)).remove)
        yield read


def _require_finite(states: dict[str, NDArray[np.float32]]) -> None:
    for name, rows in states.items():
        # NaN and infinity survive a sum, which is cheaper than checking every number
        if not np.isfinite(rows.sum(dtype=np.float64)):
            raise NonFiniteError(
                f"The model's state at {name!r} holds NaN or infinity. Load the model in float32 or bfloat16, "
                "or lower the strength of its steering."
            )


def require_visited(sites: Sequence[Site], states: Mapping[str, Any]) -> None:
    """Raise a `SiteError` that names the first of ``sites`` without an entry in ``states``."""
    idle = next((site for site in sites if site.name not in states), None)
    if idle is not None:
        raise SiteError(
            f"The module at site {idle.name!r} ({idle.path}) did not run in the model's pass over these texts. "
            "Name a site that runs: lm.site_names(model) lists them."
        )


def runner(model: nn.Module, inner: nn.Module, sites: Sequence[Site]) -> Callable[..., Any]:
    """Return the cheapest call that runs through all ``sites``."""
    config = getattr(inner, "config", None)
    if getattr(config, "is_encoder_decoder", False):
        return _runner_of_halves(inner, sites)
    run = model if virtual_tokens(model) else _smallest(inner, sites)
    takes_cache = hasattr(config, "use_cache")
    return lambda **inputs: run(**inputs, use_cache=False) if takes_cache else run(**inputs)


def _smallest(model: nn.Module, sites: Sequence[Site]) -> nn.Module:
    # the output layer takes a third of the time of a small model, and runs only if a site lies in it
    base = reading_model(model)
    inside = {id(module) for module in base.modules()}
    return base if all(id(site.module) in inside for site in sites) else model


def _runner_of_halves(model: Any, sites: Sequence[Site]) -> Callable[..., Any]:
    encoder, config = model.get_encoder(), model.config
    if {id(site.module) for site in sites} <= {id(module) for module in encoder.modules()}:
        return lambda **inputs: encoder(**inputs)
    starts = (getattr(config, name, None) for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"))
    start = next((int(token) for token in starts if token is not None), 0)

    def run(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> None:
        shifted = torch.cat([torch.full_like(input_ids[:, :1], start), input_ids[:, :-1]], dim=1)
        model(input_ids=input_ids, attention_mask=attention_mask, decoder_input_ids=shifted, use_cache=False)

    return run


def _pooled(
    state: torch.Tensor, mask: torch.Tensor, chosen: torch.Tensor, pooling: Pooling, name: str, virtual: int
) -> torch.Tensor:
    n, length = mask.shape
    if virtual and state.shape[:-1].numel() == n * (length + virtual):
        state = state.reshape(n, length + virtual, -1)[:, virtual:]
    if state.shape[:-1].numel() != n * length:
        raise ShapeError(
            f"At {name!r} a state of shape {tuple(state.shape)} came for {n} x {length} tokens. "
            "Read a module that returns (batch, length, d)."
        )
    state = state.detach().reshape(n, length, -1)
    mask, chosen = mask.to(state.device), chosen.to(state.device)
    match pooling:
        case "last":
            rows = state[torch.arange(n, device=state.device), mask.sum(dim=1) - 1]
        case "cls":
            rows = state[:, 0]
        case "mean":
            kept = state.to(torch.float32).masked_fill(chosen[..., None] == 0, 0.0)
            rows = kept.sum(dim=1) / chosen.sum(dim=1, keepdim=True)
        case _:
            rows = state[chosen.bool()]
    return rows.to(torch.float32, copy=True)
