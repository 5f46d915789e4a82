"""One pass of a decoder over rows that are padded on the left, with its cache; and caches that are keys and values."""

import inspect
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import DynamicCache, DynamicLayer

from repsurgery.lm.sites.wrappers import unwrapped

__all__ = [
    "append_rows",
    "decode_pass",
    "is_plain_cache",
    "keep_positions",
    "keep_rows",
    "parameters_of",
    "plain_cache",
    "rope_threshold",
]

_ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}


def parameters_of(model: nn.Module) -> Collection[str]:
    """Return the names of the arguments of the model's forward pass."""
    return inspect.signature(unwrapped(model).forward).parameters.keys()


def decode_pass(model: Any, accepted: Collection[str], ids: torch.Tensor, mask: torch.Tensor, **more: Any) -> Any:
    """Return the output of a pass over tokens (n, length) whose logits are those of the last position.

    Parameters
    ----------
    accepted : collection of str
        See `parameters_of`.
    mask : (n, cached + length) tensor
        Which positions hold tokens; padding is on the left.
    **more
        Further arguments, such as ``past_key_values``.
    """
    if "position_ids" in accepted:
        positions = (mask.cumsum(dim=-1) - 1).clamp(min=0)
        more["position_ids"] = positions[:, -ids.shape[1] :]
    if "logits_to_keep" in accepted:
        more["logits_to_keep"] = 1
    return model(input_ids=ids, attention_mask=mask, use_cache=True, **more)


def is_plain_cache(cache: Any) -> bool:
    """Return whether a cache is nothing but the keys and values of every position."""
    return type(cache) is DynamicCache and all(type(layer) is DynamicLayer for layer in cache.layers)


def plain_cache(model: nn.Module) -> DynamicCache | None:
    """Return an empty cache that keeps every position; None for a model whose state is more than keys and values.

    A model with sliding windows would keep the last positions only. It masks the others itself, so that it computes the
    same with all of them.
    """
    inner: Any = unwrapped(model)
    config = inner.config.get_text_config(decoder=True)
    types = getattr(config, "layer_types", None)
    if getattr(inner, "_is_stateful", False) or getattr(config, "num_kv_shared_layers", None):
        return None
    if "past_key_values" not in parameters_of(model) or (types is not None and not set(types) <= _ATTENTION):
        return None
    return DynamicCache()


def rope_threshold(model: nn.Module) -> float:
    """Return the length of a text from which the rotary embeddings of its whole batch depend on it; else infinity."""
    lengths = [float("inf")]
    module: Any
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        for layer, kind in (kinds if isinstance(kinds, Mapping) else {None: kinds}).items():
            if kind == "longrope":
                stated = module.config.rope_parameters
                lengths.append((stated if layer is None else stated[layer])["original_max_position_embeddings"])
            elif isinstance(kind, str) and "dynamic" in kind:
                lengths.append(module.original_max_seq_len)
    return min(lengths)


def keep_rows(cache: DynamicCache, rows: torch.Tensor, first: int = 0) -> None:
    """Keep the rows of a plain cache with these indices, in this order, and the positions from ``first`` on."""
    for layer in cache.layers:
        layer.keys, layer.values = (kept[rows][..., first:, :] for kept in (layer.keys, layer.values))


def keep_positions(cache: DynamicCache, length: int) -> None:
    """Keep the first positions of a plain cache."""
    for layer in cache.layers:
        layer.keys, layer.values = (kept[..., :length, :] for kept in (layer.keys, layer.values))


def append_rows(cache: DynamicCache, other: DynamicCache) -> None:
    """Append the rows of another plain cache; the shorter one is padded on the left."""
    length = max(cache.get_seq_length(), other.get_seq_length())
    for layer, more in zip(cache.layers, other.layers, strict=True):
        layer.keys, layer.values = (
            torch.cat([_padded(a, length), _padded(b, length)])
            for a, b in ((layer.keys, more.keys), (layer.values, more.values))
        )


def _padded(states: torch.Tensor, length: int) -> torch.Tensor:
    return nn.functional.pad(states, (0, 0, length - states.shape[-2], 0))
