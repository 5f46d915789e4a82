"""Read a pass from the arguments of a call: its tokens, mask, cache, prompt and virtual tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from repsurgery.lm.sites.names import Role
from repsurgery.lm.sites.wrappers import virtual_tokens
from repsurgery.lm.steer.positions import Forward, Texts
from repsurgery.lm.steer.turns import Turns, turns_of_call

__all__ = ["Call", "call_of", "forward_of"]

# a pass is read without its model's family, so this lists the names of the cache in all families
_CACHES = ("past_key_values", "cache_params", "state", "mems", "past_buckets_states", "layer_past")
_INPUTS = ("inputs", "input_ids", "inputs_embeds", "attention_mask")


@dataclass(slots=True)
class Call:
    """One running call of ``generate``.

    Attributes
    ----------
    prompt : int or None
        The prompt's length, padding included; None where the call does not reveal it.
    virtual : int
        The number of virtual tokens that PEFT puts before it.
    read : int or None
        Tokens read so far in this call, for caches without a length; None where the call began with such a cache.
    decoder_prompt : int or None
        The number of tokens in the first pass of the decoder of an encoder-decoder.
    turns : function or None
        The turns of the assistant in the prompt, see `repsurgery.lm.steer.turns`.
    batch : int or None
        The number of prompts; passes have a multiple of it where the call writes several texts for each prompt.
    """

    prompt: int | None
    virtual: int = 0
    read: int | None = 0
    decoder_prompt: int | None = None
    turns: Turns | None = None
    batch: int | None = None


def call_of(arguments: Mapping[str, Any], prepare: Any = None) -> Call:
    """Return the `Call` that ``generate`` with these named ``arguments`` begins.

    ``prepare`` is the model's ``prepare_inputs_for_generation``, which PEFT replaces by its own while it generates.
    """
    # a call that continues a cache may pass the new tokens alone, but then its mask spans the whole sequence
    tensors = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
    shapes = [tensors[name].shape for name in _INPUTS if name in tensors and tensors[name].ndim in (2, 3)]
    lengths, batches = [shape[1] for shape in shapes], [shape[0] for shape in shapes]
    # without any input, generate starts from one token of its own
    prompt = max(lengths) if lengths else (None if tensors else 1)
    uncounted = _cached(arguments) is None
    virtual = virtual_tokens(getattr(prepare, "__self__", None))
    batch = max(batches, default=None)
    return Call(prompt, virtual, None if uncounted else 0, turns=turns_of_call(), batch=batch)


def forward_of(
    arguments: Mapping[str, Any],
    *,
    role: Role = "model",
    call: Call | None = None,
    outer: Forward | None = None,
    texts: Texts | None = None,
) -> Forward:
    """Return the pass that a module called with these named ``arguments`` is about to make.

    Parameters
    ----------
    call : Call or None
        The call of ``generate`` that it belongs to.
    outer : Forward or None
        The pass of the module around this one. Its mask is used where this one got none, and tokens that PEFT put
        before its own are virtual.
    texts : Texts or None
        What is known of the texts of a pass outside ``generate``.
    """
    mask, tokens = arguments.get("attention_mask"), arguments.get("input_ids")
    tokens = arguments.get("inputs_embeds") if tokens is None else tokens
    if role == "whole":
        return _doubtful(mask, "An encoder-decoder reads two sequences, and this site lies in neither of its halves.")
    if not isinstance(tokens, torch.Tensor) or tokens.ndim < 2:
        mask = _anything_like_a_mask(arguments) if mask is None else mask
        return _doubtful(mask, "The model was called without input_ids or inputs_embeds.")
    batch, length = tokens.shape[:2]
    if role in ("encoder", "decoder"):
        offset = _offset(arguments, length, call if role == "decoder" else None)
        return Forward(batch, length, offset, _prompt_of_half(role, call, offset, length), mask)
    if outer is None or outer.doubt is not None:
        offset = _offset(arguments, length, call)
        virtual = call.virtual if call is not None else 0
    else:
        offset = _cached(arguments) or outer.offset
        mask = outer.mask if mask is None and outer.length == length else mask
        virtual = outer.virtual
        added = (offset or 0) + length - (outer.offset or 0) - outer.length
        if added and outer.role == "peft":
            virtual += added
        elif added and call is not None:
            return _doubtful(mask, f"The model turned {outer.length} tokens into {length} states.")
    if call is not None and call.prompt is None:
        return _doubtful(mask, "The call of generate does not reveal how long its prompt is.")
    if call is None:
        return Forward(batch, length, offset, None, mask, virtual, role=role, texts=texts)
    return Forward(batch, length, offset, call.prompt, mask, virtual, role=role, turns=call.turns)


def _prompt_of_half(role: Role, call: Call | None, offset: int | None, length: int) -> int | None:
    if role == "encoder" or call is None:
        return None
    if call.decoder_prompt is None:
        # generate may put a start token before its input, so the length is taken from the first pass
        call.decoder_prompt = (offset or 0) + length
    return call.decoder_prompt


def _offset(arguments: Mapping[str, Any], length: int, call: Call | None) -> int | None:
    """Return how many tokens this sequence had before; None where neither cache nor call reveals it."""
    cached = _cached(arguments)
    if call is None or call.read is None:
        return cached
    # a pass no longer than the tokens read before, with an empty cache, continues from states inside the model
    offset = call.read if cached is None or (cached == 0 and length <= call.read) else cached
    call.read = offset + length
    return offset


def _anything_like_a_mask(arguments: Mapping[str, Any]) -> torch.Tensor | None:
    """Return a tensor among ``arguments`` that may hide padding: two-dimensional, of zeros and ones, with a zero."""
    flat = [item for value in arguments.values() for item in (value if isinstance(value, tuple | list) else [value])]
    tables = (item for item in flat if isinstance(item, torch.Tensor) and item.ndim == 2)
    return next(
        (table for table in tables if bool(((table == 0) | (table == 1)).all()) and not bool(table.all())), None
    )


def _doubtful(mask: Any, reason: str) -> Forward:
    return Forward(0, 0, None, None, mask, doubt=reason)


def _cached(arguments: Mapping[str, Any]) -> int | None:
    """Return how many tokens the cache among ``arguments`` holds; None where it holds states without a count."""
    cache = next((arguments[name] for name in _CACHES if arguments.get(name) is not None), None)
    if cache is None:
        return 0
    if hasattr(cache, "get_seq_length"):
        try:
            return int(cache.get_seq_length())
        except (ValueError, TypeError, NotImplementedError):
            return None
    try:
        return int(arguments["past_key_values"][0][0].shape[-2])
    except (AttributeError, IndexError, KeyError, TypeError):
        return None
