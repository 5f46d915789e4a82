"""Digests of the whole content of a model or a tokenizer: equal digests mean equal results."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from repsurgery.checkpoint import digest, file_digest
from repsurgery.lm.sites.wrappers import behind

__all__ = ["fingerprint", "plain_content", "tokenizer_fingerprint"]

_BOOKKEEPING = {
    *vars(nn.Module()),
    *("forward", "generate", "prepare_inputs_for_generation", "gradient_checkpointing", "hf_device_map"),
    *("name_or_path", "_is_hf_initialized", "_is_torch_compile", "_require_grads_hook", "_require_grads_hooks"),
}
"""Attributes of modules that do not affect results, or are covered in another way."""
_PROVENANCE = {
    *("transformers_version", "_name_or_path", "_commit_hash", "_from_model_config"),
    *("peft_version", "base_model_name_or_path", "revision", "inference_mode"),
}
"""Entries of configurations that describe where a model came from, not what it computes."""
_NOTHING = object()
_ACTIVE = ("active_adapter", "_active_adapter")
_ADAPTER_STATE = (*_ACTIVE, "_adapters_disabled", "_disable_adapters", "merged_adapters", "scaling")


def fingerprint(model: nn.Module, *, ignore_dtype: bool = False) -> str:
    """Return a SHA-256 of everything in ``model`` that affects its results, as 64 hexadecimal digits.

    It covers every parameter and buffer (name, shape, dtype and all bytes; tied weights are read once), the
    configurations, the class and the simple attributes of every module, such as the epsilon of a norm, and the state
    of adapters: their weights and scales, and which are active, merged or disabled. It does not cover hooks, the
    device, or the folder from which the model was loaded.

    Parameters
    ----------
    model : nn.Module
        With its PEFT wrapper, where it has one.
    ignore_dtype : bool
        Cover the weights alone: every parameter and stored buffer after rounding to bfloat16, and the active adapters.
        The result is the same for a model in float32 and in bfloat16, and in float16 where each weight is exact in
        float16. The configuration is not covered.

    Guarantees
    ----------
    Any change of a weight, however it is made, changes it (test_every_change_of_the_model_changes_its_fingerprint).
    Running the model does not change it (test_running_a_model_leaves_its_fingerprint_alone).
    """
    model = behind(model)
    model = getattr(model, "_orig_mod", model)  # a compiled model computes what the original does
    content = _Content(ignore_dtype=ignore_dtype)
    named: Iterator[tuple[str, Any]] = iter(model.state_dict().items())
    if not ignore_dtype:
        duplicates = (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
        named = chain(named, *duplicates)
    tensors = {name: content.plain(value) for name, value in named}
    read: Callable[[nn.Module], Any] = content.adapters if ignore_dtype else content.module
    modules = {name: read(module) for name, module in model.named_modules(remove_duplicate=False)}
    return digest([tensors, modules])


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """Return a SHA-256 of everything that affects encoding and decoding, as 64 hexadecimal digits.

    It covers the vocabulary with its merges and rules, the special tokens, the chat template and the side of
    truncation. It does not cover the side of padding, because this package pads texts itself, nor the settings that
    the last call left in the tokenizer.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = json.loads(backend.to_str()) if backend is not None else _vocabulary(tokenizer)
    # these two settings change whenever a tokenizer is used
    rules = {name: value for name, value in rules.items() if name not in ("truncation", "padding")}
    names = ("truncation_side", "add_bos_token", "add_eos_token", "clean_up_tokenization_spaces", "chat_template")
    facts = {name: getattr(tokenizer, name, None) for name in (*names, "special_tokens_map", "all_special_ids")}
    return digest([rules, _Content().plain(facts)])


def plain_content(value: Any) -> Any:
    """Return ``value`` as JSON, with arrays and tensors as digests; other objects are represented by their class."""
    return _Content().plain(value)


def _vocabulary(tokenizer: Any) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        try:
            files = [path for path in tokenizer.save_vocabulary(folder) if path]
        except NotImplementedError:
            files = []
        merges = [file_digest(Path(path)) for path in files]
    return {"class": type(tokenizer).__qualname__, "vocabulary": tokenizer.get_vocab(), "files": merges}


class _Content:
    """Converts the content of a model into JSON values, with tensors as digests; each storage is read once."""

    def __init__(self, *, ignore_dtype: bool = False) -> None:
        self._ignore_dtype = ignore_dtype
        self._known: dict[Any, Any] = {}

    def module(self, module: nn.Module) -> list[Any]:
        """Return class, forward function and attributes of a module without those of its children."""
        own = {name: value for name, value in vars(module).items() if name not in _BOOKKEEPING}
        # functions set on the instance are identified by their names, and private ones are left out
        values = {name: self._attribute(name, value) for name, value in own.items() if not _hidden(name, value)}
        # an attribute that equals its class attribute changes nothing
        defaults = {name: self._attribute(name, getattr(type(module), name, _NOTHING)) for name in values}
        changed = {name: value for name, value in values.items() if value != defaults[name]}
        return [type(module).__qualname__, _name(module.forward), changed]

    def adapters(self, module: nn.Module) -> dict[str, Any]:
        """Return the active adapters of a PEFT layer and their scales; an empty mapping for other modules."""
        own = vars(module)
        if "_disable_adapters" not in own and "_adapters_disabled" not in own:
            return {}
        return {name: self._attribute(name, own[name]) for name in _ADAPTER_STATE if name in own}

    def _attribute(self, name: str, value: Any) -> Any:
        one = name in _ACTIVE and isinstance(value, str)  # PEFT stores a single adapter either as a name or as a list
        return self.plain([value] if one else value)

    def plain(self, value: Any) -> Any:
        """Return ``value`` as JSON; an object without readable content is represented by the name of its class."""
        match value:
            case Enum():
                return self.plain(value.value)
            case None | bool() | int() | float() | str():
                return value
            case torch.Tensor():
                return self._tensor(value)
            case np.ndarray() | np.generic():
                return [str(value.dtype), list(value.shape), hashlib.sha256(value.tobytes()).hexdigest()]
            case Mapping():
                return sorted(([_key(k), self.plain(v)] for k, v in value.items()), key=lambda pair: str(pair[0]))
            case list() | tuple():
                return [self.plain(item) for item in value]
            case set() | frozenset():
                return sorted((self.plain(item) for item in value), key=json.dumps)
            case torch.dtype():
                return str(value)
        return self._configuration(value) if hasattr(value, "to_dict") else _name(value)

    def _configuration(self, value: Any) -> Any:
        if id(value) not in self._known:  # all modules share one configuration
            facts = {name: fact for name, fact in value.to_dict().items() if name not in _PROVENANCE}
            attention = getattr(value, "_attn_implementation", None)
            self._known[id(value)] = [_name(type(value)), attention, self.plain(facts)]
        return self._known[id(value)]

    def _tensor(self, tensor: torch.Tensor) -> list[Any]:
        facts = [list(tensor.shape), "" if self._ignore_dtype else str(tensor.dtype)]
        if tensor.is_meta:
            return [*facts, "meta"]
        if hasattr(tensor, "__tensor_flatten__"):  # a tensor subclass that consists of tensors, as in torchao
            parts, context = tensor.__tensor_flatten__()
            return [*facts, [[part, self.plain(getattr(tensor, part))] for part in parts], self.plain(context)]
        if tensor.layout != torch.strided or tensor.is_quantized:
            return [*facts, _bytes_digest(tensor.dequantize() if tensor.is_quantized else tensor.to_dense())]
        place = (tensor.device, tensor.data_ptr(), *facts[0], tensor.stride(), tensor.dtype)
        if place not in self._known:
            rounded = self._ignore_dtype and tensor.is_floating_point()
            # the tensor is kept alive, so that no other tensor can be allocated at the same address meanwhile
            self._known[place] = tensor, _bytes_digest(tensor.to(torch.bfloat16) if rounded else tensor)
        return [*facts, self._known[place][1]]


def _bytes_digest(tensor: torch.Tensor) -> str:
    flat = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    return hashlib.sha256(flat.view(torch.uint8).numpy().data).hexdigest()


def _hidden(name: str, value: Any) -> bool:
    return name.startswith("_") and callable(value)


def _key(value: Any) -> Any:
    return value if isinstance(value, int | float | bool | None) else str(value)


def _name(value: Any) -> str:
    return str(getattr(value, "__qualname__", None) or type(value).__qualname__)
