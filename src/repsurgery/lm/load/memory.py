"""`plan_memory`: how much memory a model needs, before it is loaded."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from repsurgery.arrays import check_integer
from repsurgery.errors import ModelError
from repsurgery.lm.load.models import DEFAULT_MODEL, check_loading, empty_model, read_config

__all__ = ["PROGRAM", "MemoryPlan", "free_on_cpu", "plan_memory"]

PROGRAM = 500 * 10**6
"""Bytes of Python, PyTorch and Transformers themselves, as measured on Linux; a CUDA context is of similar size."""
USUAL_TOKENS = 1024
_SAMPLING = 32
"""Bytes per entry of the vocabulary while a token is drawn: the logits in float32, their order, sums and noise."""
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The memory that a model needs to continue texts, in bytes.

    Attributes
    ----------
    model, dtype, device : str
    parameters : int
        Tied weights count once.
    batch, tokens : int
        Texts at once, and the length of each with its continuation.
    weights : int
        Exact, unless the weights are quantised: then the size of their files.
    cache_per_token, cache : int
        Keys and values of one token of one text, and of the whole batch.
    logits : int
        Of one step, and what drawing a token from them needs.
    working : int
        What one layer holds while it reads the prompts.
    program : int
        See `PROGRAM`.
    free : int or None
        The memory that is free on the device; None if unknown.

    Guarantees
    ----------
    Weights and cache are exact (test_weights_and_cache_are_exact_to_the_byte).
    The total is within 30 % of the measured peak of SmolLM2 (test_the_total_is_near_the_measured_peak).
    """

    model: str
    dtype: str
    device: str
    parameters: int
    batch: int
    tokens: int
    weights: int
    cache_per_token: int
    cache: int
    logits: int
    working: int
    free: int | None
    program: int = PROGRAM

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return self.weights + self.cache + self.logits + self.working + self.program

    @property
    def fits(self) -> bool | None:
        """Whether the total is free on the device; None if that is unknown."""
        return None if self.free is None else self.total <= self.free


def plan_memory(
    name: str | os.PathLike[str] = DEFAULT_MODEL,
    *,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = None,
    batch: int = 1,
    tokens: int | None = None,
    revision: str | None = None,
) -> MemoryPlan:
    """Return how much memory a model needs, from its configuration and the headers of its files; no weight is read.

    Parameters
    ----------
    name, dtype, device, revision
        As in `load`. An embedded model that has not been used before is unpacked.
    batch : int
        Texts that are continued at once.
    tokens : int or None
        The length of a text with its continuation; None is 1024, or the context of the model if that is shorter.

    Raises
    ------
    ModelError
        As in `load`, where there is no configuration; or the files of a quantised model are not at hand.
    """
    placed = check_loading(device, dtype)["device_map"]
    batch = check_integer("batch", batch)
    config, folder = read_config(name, revision)
    text = config.get_text_config()
    limit = int(getattr(text, "max_position_embeddings", None) or USUAL_TOKENS)
    tokens = min(USUAL_TOKENS, limit) if tokens is None else check_integer("tokens", tokens)
    chosen = _dtype(config, folder, dtype)
    model = empty_model(config).to(chosen)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    size = chosen.itemsize
    quantised = getattr(config, "quantization_config", None) is not None
    weights = _stored_bytes(folder, name) if quantised else parameters * size
    width, heads = int(text.hidden_size), int(getattr(text, "num_attention_heads", 0) or 0)
    inner = int(getattr(text, "intermediate_size", None) or 4 * width)
    generates = callable(getattr(model, "prepare_inputs_for_generation", None)) and model.can_generate()
    return MemoryPlan(
        model=os.fspath(name),
        dtype=str(chosen).removeprefix("torch."),
        device="auto" if placed == "auto" else str(placed[""] if placed else "cpu"),
        parameters=parameters,
        batch=batch,
        tokens=tokens,
        weights=weights,
        cache_per_token=_cache_bytes(model, text, 1, 1) if generates else 0,
        cache=_cache_bytes(model, text, batch, tokens) if generates else 0,
        logits=batch * int(text.vocab_size) * (size + _SAMPLING) if generates else 0,
        working=batch * tokens * (6 * width + 4 * inner) * size + 2 * batch * heads * tokens**2 * size,
        free=_free_bytes(placed),
    )


def _dtype(config: Any, folder: Path | None, dtype: Any) -> torch.dtype:
    """Return the dtype in which `load` would hold the weights."""
    asked = check_loading(None, dtype)["dtype"]
    if isinstance(asked, torch.dtype):
        return asked
    stated = getattr(config, "dtype", None)
    if isinstance(stated, torch.dtype):
        return stated
    kinds = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    return next((kinds[kind] for kind, _ in _headers(folder) if kind in kinds), torch.float32)


def _headers(folder: Path | None) -> Iterator[tuple[str, int]]:
    """Yield the format and the bytes of each tensor in the safetensors files of a folder."""
    for file in sorted(folder.glob("*.safetensors")) if folder is not None else ():
        with file.open("rb") as stream:
            header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        for name, tensor in header.items():
            if name != "__metadata__":
                start, stop = tensor["data_offsets"]
                yield tensor["dtype"], stop - start


def _stored_bytes(folder: Path | None, name: str | os.PathLike[str]) -> int:
    total = sum(size for _, size in _headers(folder))
    if not total:
        raise ModelError(
            f"'{os.fspath(name)}' is quantised, so its size follows from its files alone, and there is no safetensors "
            "file here. Pass the folder of the downloaded model."
        )
    return total


def _cache_bytes(model: Any, text: Any, batch: int, tokens: int) -> int:
    """Return the bytes of the keys and values of ``batch`` texts of ``tokens`` tokens."""
    try:
        # the model itself says what it keeps, such as the window of a sliding attention
        ids = torch.zeros(batch, tokens, dtype=torch.long, device="meta")
        with torch.no_grad():
            cache = model(input_ids=ids, use_cache=True).past_key_values
        return sum(t.numel() * t.element_size() for layer in cache.layers for t in (layer.keys, layer.values))
    except (RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError):
        # some models look at numbers, of which there are none; recurrent ones have states of a fixed size instead
        if not getattr(text, "num_attention_heads", None):
            return 0
        heads = int(getattr(text, "num_key_value_heads", None) or text.num_attention_heads)
        width = int(getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads)
        return 2 * int(text.num_hidden_layers) * heads * width * int(model.dtype.itemsize) * batch * tokens


def _free_bytes(placed: Any) -> int | None:
    """Return the free memory of a device, or of the CPU and every CUDA device for "auto"."""
    if placed == "auto":
        return free_on_cpu() + sum(torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count()))
    device = torch.device("cpu") if placed is None else placed[""]
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return free_on_cpu() if device.type == "cpu" else None


def free_on_cpu() -> int:
    """Return the bytes of memory that are free, within what this process is allowed to use."""
    free = int(psutil.virtual_memory().available)
    try:
        most, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return free
    return min(free, int(most) - int(used)) if most.isdigit() and used.isdigit() else free
