"""Read states at several sites in one pass, pooled as they appear and never stored."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from repsurgery.errors import NonFiniteError, ParameterError, ShapeError
from repsurgery.lm.running import entry_device
from repsurgery.lm.sites import Site, reading_model, resolve_site, unwrapped
from repsurgery.lm.states import Visit, attach
from repsurgery.lm.texts import Tokens, pad, pad_id
from repsurgery.lm.torch_maps import to_rows

__all__ = ["Pooling", "Reader", "check_pooling", "reader"]

Pooling = Literal["last", "cls", "mean", "all"]
"""``last``: each text's last token. ``cls``: its first. ``mean``: the mean of its tokens. ``all``: every token."""

Reader = Callable[[Sequence[Tokens]], dict[str, NDArray[np.float32]]]
"""Takes tokens of some texts and returns, per site, their pooled states as rows (n, d)."""


def check_pooling(pooling: Pooling, allowed: Sequence[str] = get_args(Pooling)) -> Pooling:
    """Return ``pooling``, or say which there are."""
    if pooling not in allowed:
        raise ParameterError(f"pooling is {pooling!r}; it must be one of {list(allowed)}.")
    return pooling


@contextmanager
def reader(model: nn.Module, tokenizer: Any, sites: Sequence[str], pooling: Pooling) -> Iterator[Reader]:
    """Stand hooks on ``sites`` while the block runs; the reader it yields makes one pass per call.

    Texts are padded on the right whatever the tokenizer prefers: positions then count from 0 in every family, and
    causal attention never sees the padding.
    """
    inner = unwrapped(model)
    found = [resolve_site(inner, name) for name in sites]
    run = _smallest(inner, found)
    padding = pad_id(inner, tokenizer)
    current: dict[str, NDArray[np.float32]] = {}
    mask = torch.empty(0)

    def visitor(name: str) -> Visit:
        def visit(state: torch.Tensor) -> None:
            # pooled at once: some families add to the same tensor in place right afterwards
            current[name] = to_rows(_pooled(state, mask, pooling, name))

        return visit

    def read(rows: Sequence[Tokens]) -> dict[str, NDArray[np.float32]]:
        nonlocal mask
        ids, mask = pad(rows, token=padding, side="right")
        device = entry_device(inner)
        current.clear()
        run(input_ids=ids.to(device), attention_mask=mask.to(device))
        _require_finite(current)
        return dict(current)

    with ExitStack() as stack:
        for site in found:
            stack.callback(attach(site, visitor(site.name)).remove)
        yield read


def _require_finite(found: dict[str, NDArray[np.float32]]) -> None:
    for name, rows in found.items():
        # NaN and infinity survive a sum, which is cheaper than looking at every number
        if not np.isfinite(rows.sum(dtype=np.float64)):
            raise NonFiniteError(
                f"The model's state at {name!r} holds NaN or infinity. Load the model in float32 or bfloat16, "
                "or lower the strength of what steers it."
            )


def _smallest(model: nn.Module, sites: Sequence[Site]) -> Callable[..., Any]:
    # the output layer costs a third of a small model; it runs only where a site lies in it
    base = reading_model(model)
    inside = {id(module) for module in base.modules()}
    run: nn.Module = base if all(id(site.module) in inside for site in sites) else model
    takes_cache = hasattr(getattr(model, "config", None), "use_cache")
    return lambda **inputs: run(**inputs, use_cache=False) if takes_cache else run(**inputs)


def _pooled(state: torch.Tensor, mask: torch.Tensor, pooling: Pooling, name: str) -> torch.Tensor:
    n, length = mask.shape
    if state.shape[:-1].numel() != n * length:
        raise ShapeError(
            f"At {name!r} a state of shape {tuple(state.shape)} came for {n} x {length} tokens. "
            "Read a module that returns (batch, length, d)."
        )
    state = state.detach().view(n, length, -1)
    mask = mask.to(state.device)
    match pooling:
        case "last":
            rows = state[torch.arange(n, device=state.device), mask.sum(dim=1) - 1]
        case "cls":
            rows = state[:, 0]
        case "mean":
            kept = state.to(torch.float32).masked_fill(mask[..., None] == 0, 0.0)
            rows = kept.sum(dim=1) / mask.sum(dim=1, keepdim=True)
        case _:
            rows = state[mask.bool()]
    return rows.to(torch.float32, copy=True)
