"""Modules inside the blocks of a model: their sites, the pooled states of texts there, and hooks that change states."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from repsurgery.errors import SiteError
from repsurgery.lm.batching.batches import entry_device, evaluating, map_batches
from repsurgery.lm.batching.tokens import encode, pad, pad_id
from repsurgery.lm.read.states import require_visited, runner
from repsurgery.lm.sites.families import family_of, text_config
from repsurgery.lm.sites.names import Site, resolve_site, site_names
from repsurgery.lm.sites.wrappers import unwrapped
from repsurgery.lm.steer.hooks import Visit, attach, eagerly
from repsurgery.lm.steer.torch_maps import to_rows

__all__ = ["LONGEST", "Pool", "blocks_of", "head_sites", "hooked", "modules_in_blocks", "pooled_states", "token_mean"]

LONGEST = 128
"""Labelled texts are read up to this many tokens, as in the released code of AurA and of Linear-AcT."""

Pool = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Takes states (n, length, d) and the mask (n, length) of their tokens, padded on the right; returns rows (n, d)."""


def blocks_of(model: nn.Module) -> list[Site]:
    """Return the output of every block of ``model``, or raise a `SiteError` where its family is unknown."""
    names = [name for name in site_names(model) if name.count(".") == 1 and name.startswith("layers.")]
    if not names:
        raise SiteError(f"{type(model).__name__} has no single stack of blocks. Use a decoder.")
    return [resolve_site(model, name) for name in names]


def modules_in_blocks(
    model: nn.Module, accepts: Callable[[str, nn.Module], bool], *, method: str, what: str
) -> list[Site]:
    """Return the outputs of the modules of every block that lie outside its attention and that ``accepts`` chooses.

    Parameters
    ----------
    accepts : function of a module's path inside its block, and the module
    method, what : str
        For the `SiteError` where a block has no such module: "AurA", "linear layers in its MLP".
    """
    model, attention = unwrapped(model), family_of(unwrapped(model)).attention
    sites = []
    for block in blocks_of(model):
        paths = [
            path
            for path, module in block.module.named_modules()
            if path and not any(f"{path}.".startswith(f"{a}.") for a in attention) and accepts(path, module)
        ]
        if not paths:
            raise SiteError(
                f"{method} changes the outputs of {what}, and {block.path} of {type(model).__name__} has none. "
                "Leave this method out for models of this family."
            )
        sites += [resolve_site(model, f"{block.path}.{path}") for path in paths]
    return sites


def head_sites(model: nn.Module, *, method: str) -> list[Site]:
    """Return, for every block, the concatenated outputs of its attention heads: what its output projection reads."""
    model = unwrapped(model)
    if not hasattr(text_config(model), "num_attention_heads"):
        raise SiteError(
            f"{method} changes the outputs of attention heads, and {type(model).__name__} has none. "
            "Leave this method out for models of this family."
        )
    sites = []
    for i, block in enumerate(blocks_of(model)):
        writer = resolve_site(model, f"layers.{i}.attn").writer
        if writer is None:
            raise SiteError(
                f"{method} reads what the output projection of the attention reads, and {block.path} of "
                f"{type(model).__name__} has no such layer. Leave this method out for models of this family."
            )
        sites.append(replace(resolve_site(model, writer), side="input"))
    return sites


@contextmanager
def hooked(visits: Mapping[Site, Visit]) -> Iterator[None]:
    """Call each visit on every state that passes its site while the block runs, in this thread.

    Guarantees
    ----------
    Afterwards the model has no hook of this block, also when it raised (test_hooks_are_removed).
    """
    with ExitStack() as stack:
        stack.enter_context(eagerly())
        for site, visit in visits.items():
            stack.callback(attach(site, visit).remove)
        yield


def pooled_states(
    model: nn.Module,
    tokenizer: Any,
    texts: Sequence[str],
    sites: Sequence[Site],
    pool: Pool,
    *,
    max_length: int,
    batch_size: int = 32,
    progress: bool = False,
    label: str = "reading states",
) -> dict[str, NDArray[np.float32]]:
    """Return the pooled states (n, d) of ``texts`` at every site, by name, from one pass over each text.

    Guarantees
    ----------
    Rows do not depend on the batch size, beyond rounding (test_pooled_states_do_not_depend_on_the_batch_size).
    """
    inner = unwrapped(model)
    tokens = encode(inner, tokenizer, list(texts), max_length=max_length, caller=label)
    run, padding, device = runner(inner, inner, sites), pad_id(inner, tokenizer), entry_device(inner)
    current: dict[str, NDArray[np.float32]] = {}
    mask = torch.empty(0)

    def visitor(name: str) -> Visit:
        def visit(state: torch.Tensor) -> None:
            current[name] = to_rows(pool(state.reshape(*mask.shape, -1), mask.to(state.device)))

        return visit

    def read(batch: list[int]) -> list[dict[str, NDArray[np.float32]]]:
        nonlocal mask
        ids, mask = pad([tokens[i] for i in batch], token=padding, side="right")
        current.clear()
        run(input_ids=ids.to(device), attention_mask=mask.to(device))
        require_visited(sites, current)
        return [{name: rows[j] for name, rows in current.items()} for j in range(len(batch))]

    lengths = [len(row) for row in tokens]
    with evaluating(inner), hooked({site: visitor(site.name) for site in sites}):
        rows = map_batches(lengths, read, batch_size=batch_size, progress=progress, label=label)
    return {site.name: np.stack([row[site.name] for row in rows]) for site in sites}


def token_mean(state: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the mean of each text's states over its tokens, in float32: a `Pool`."""
    total = state.float().masked_fill(mask[..., None] == 0, 0.0).sum(dim=1)
    return total / mask.sum(dim=1, keepdim=True)
