"""What to say of an export: how it is loaded in transformers, PEFT or llama.cpp, and whether an adapter merges."""

from pathlib import Path
from typing import Any

from repsurgery.lm.fold.lora import LoraExport

__all__ = ["adapter_code", "adapter_facts", "control_vector_code", "folder_code"]


def folder_code(network: Any, folder: Path, *, custom_code: bool) -> tuple[str, ...]:
    """Return the lines that load a folded model."""
    auto, trust = _auto(network), ", trust_remote_code=True" if custom_code else ""
    return (f"from transformers import {auto}", f'model = {auto}.from_pretrained("{folder}"{trust})')


def adapter_facts(written: LoraExport) -> tuple[str, ...]:
    """Return sentences on rank, error and merging of an adapter."""
    if written.error:
        first = (
            f"Not exact: an approximation of rank {written.rank}; the relative error of the weight's change is "
            f"{written.error:.3g}. --to folder is exact."
        )
    else:
        first = f"Exact: rank {written.rank}, error 0, on {written.target}."
    if written.mergeable:
        return (first, "It merges (merge_and_unload).")
    if written.place == "adapter":
        return (
            first,
            f"It attaches but does not merge: {written.target} has no bias, and no option of the configuration adds "
            "one, so the merged weights have no place for the constant. --to folder --custom-code has.",
        )
    if written.bias_switch:
        return (first, f"It merges into a base loaded with {written.bias_switch}=True, which adds biases of zero.")
    return (first, f"It merges once {written.target} has a weight of its own, which it shares with the embeddings.")


def adapter_code(network: Any, written: LoraExport) -> tuple[str, ...]:
    """Return the lines that load an adapter with its base, and merge it where it merges."""
    auto = _auto(network)
    name = network.config._name_or_path or "MODEL"
    option = f", {written.bias_switch}=True" if written.bias_switch else ""
    lines = [
        "from peft import PeftModel",
        f"from transformers import {auto}",
        f'base = {auto}.from_pretrained("{name}"{option})',
    ]
    merges = written.place != "adapter"
    if merges and written.tied:
        layer = f"base.{written.target}"
        lines = ["import torch", *lines]
        lines.append(f"{layer}.weight = torch.nn.Parameter({layer}.weight.detach().clone())")
    lines.append(f'model = PeftModel.from_pretrained(base, "{written.folder}")')
    return (*lines, "model = model.merge_and_unload()  # optional") if merges else tuple(lines)


def control_vector_code(file: Path) -> tuple[str, ...]:
    """Return the command that runs llama.cpp with a control vector."""
    return (
        f"llama-server -m MODEL.gguf --control-vector {file}",
        f"llama-server -m MODEL.gguf --control-vector-scaled {file}:0.5  # half as strong",
    )


def _auto(network: Any) -> str:
    return "AutoModelForCausalLM" if network.can_generate() else "AutoModel"
