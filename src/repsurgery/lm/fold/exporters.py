"""Our own exports: a folded model, a LoRA adapter and a control vector of llama.cpp."""

import json
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import nn

from repsurgery.affine import AffineMap
from repsurgery.checkpoint import added_files
from repsurgery.errors import FoldError
from repsurgery.exporters import ExportTarget, Written
from repsurgery.lm.fold.fold import fold, fold_target, portability
from repsurgery.lm.fold.fold_points import FoldPoint, require_plain, single_map
from repsurgery.lm.fold.gguf import control_vector, gguf_package, to_gguf
from repsurgery.lm.fold.lora import LoraExport, peft_package, place_of_constant, to_lora
from repsurgery.lm.fold.lora_factors import check_rank, constant_of, lora_point, low_rank
from repsurgery.lm.fold.save import MODULE, save_folded
from repsurgery.lm.fold.weights import is_tied
from repsurgery.lm.steer.placement import Placement

__all__ = ["FOLDER", "GGUF", "LORA", "whole_map"]


def whole_map(placement: Placement) -> AffineMap:
    """Return the one map that acts on every vector at every position, or raise a `FoldError` where there is none."""
    if placement.positions != "all":
        raise FoldError(
            f"This steering is for positions={placement.positions!r}, and an export acts at every position."
        )
    return single_map(placement.function, placement.strength, caller="export")


class _Export:
    """An export of one map that acts on every vector."""

    name: str
    extra = "export"
    writes: Literal["file", "folder"] = "folder"
    options: ClassVar[Mapping[str, type]] = {}

    def require(self) -> None:
        """Raise a `MissingExtraError` where a package is missing."""

    def check(self, placement: Placement, model: Any) -> ExportTarget:
        """Return whether the export holds the steering exactly."""
        try:
            require_plain(model)
            return ExportTarget(self.name, condition=self._condition(model, whole_map(placement), placement.site))
        except FoldError as error:
            # the sentences after the first name ways out in Python
            return ExportTarget(self.name, f"{str(error).partition('. ')[0].removesuffix('.')}.")

    @abstractmethod
    def _condition(self, model: nn.Module, m: AffineMap, site: str) -> str:
        """Return what holding ``m`` takes, or raise a `FoldError` where the export cannot hold it."""


class _Folder(_Export):
    """A model for transformers, with the steering in its weights."""

    name, extra = "folder", ""
    options: ClassVar[Mapping[str, type]] = {"custom_code": bool}

    def _condition(self, model: nn.Module, m: AffineMap, site: str) -> str:
        point = fold_target(model, m, site)
        return "needs custom code" if _place(model, point, m) == "adapter" else ""

    def write(
        self, placement: Placement, model: Any, path: Path, *, custom_code: bool = False, tokenizer: Any = None
    ) -> Written:
        """Write a folder with the folded model and, if given, its tokenizer."""
        folded = fold(model, whole_map(placement), placement.site)
        with added_files(path) as draft:
            save_folded(folded, draft, custom_code=custom_code)
            if tokenizer is not None:
                tokenizer.save_pretrained(draft)
        code = _folder_code(_auto(model), path, custom_code=portability(folded) is not None)
        return Written(("Exact: the steering is in the weights.",), code)

    def how_to_load(self, path: Path) -> tuple[str, ...]:
        """Return the lines that load the folded model."""
        (architecture,) = json.loads((path / "config.json").read_text(encoding="utf-8"))["architectures"]
        auto = "AutoModelForCausalLM" if "CausalLM" in architecture or "LMHead" in architecture else "AutoModel"
        return _folder_code(auto, path, custom_code=(path / f"{MODULE}.py").exists())


class _Lora(_Export):
    """An adapter for PEFT."""

    name = "lora"
    options: ClassVar[Mapping[str, type]] = {"rank": int}

    def require(self) -> None:
        """Raise a `MissingExtraError` where PEFT is missing."""
        peft_package()

    def _condition(self, model: nn.Module, m: AffineMap, site: str) -> str:
        point = lora_point(model, m, site)
        if low_rank(m) is None:
            raise FoldError(f"A − I of this {m.kind} map has full rank, so no small adapter equals it.")
        place = _place(model, point, m)
        if place == "adapter":
            return "does not merge"
        if is_tied(model, f"{point.path}.weight"):
            return "merges untied"
        return "merges with biases" if place == "switch" else ""

    def write(self, placement: Placement, model: Any, path: Path, *, rank: int | None = None) -> Written:
        """Write a folder with the adapter, of this rank at most."""
        m = whole_map(placement)
        written = to_lora(model, m, placement.site, path, rank=check_rank(rank), constant="merge")
        return Written(_adapter_facts(written), _adapter_code(model, written), written.exact)

    def how_to_load(self, path: Path) -> tuple[str, ...]:
        """Return the lines that attach the adapter to its base."""
        config = json.loads((path / "adapter_config.json").read_text(encoding="utf-8"))
        auto = "AutoModelForCausalLM" if config["task_type"] == "CAUSAL_LM" else "AutoModel"
        return (*_base_code(auto, config["base_model_name_or_path"] or "MODEL"), _attached(path))


class _Gguf(_Export):
    """A control vector for llama.cpp."""

    name = "gguf"
    writes = "file"

    def require(self) -> None:
        """Raise a `MissingExtraError` where the package gguf is missing."""
        gguf_package()

    def _condition(self, model: nn.Module, m: AffineMap, site: str) -> str:
        control_vector(model, m, site)
        return ""

    def write(self, placement: Placement, model: Any, path: Path) -> Written:
        """Write the file of a control vector."""
        to_gguf(model, whole_map(placement), placement.site, path)
        block = placement.site.removeprefix("layers.")
        return Written((f"Exact: one float32 vector, which llama.cpp adds after block {block} at every position.",))

    def how_to_load(self, path: Path) -> tuple[str, ...]:
        """Return the commands that run llama.cpp with the control vector."""
        return (
            f"llama-server -m MODEL.gguf --control-vector {path}",
            f"llama-server -m MODEL.gguf --control-vector-scaled {path}:0.5  # half as strong",
        )


FOLDER, LORA, GGUF = _Folder(), _Lora(), _Gguf()


def _place(model: nn.Module, point: FoldPoint, m: AffineMap) -> str:
    layer = model.get_submodule(point.path)
    return place_of_constant(model, point, constant_of(layer, point, m), "merge")


def _auto(model: Any) -> str:
    return "AutoModelForCausalLM" if model.can_generate() else "AutoModel"


def _folder_code(auto: str, folder: Path, *, custom_code: bool) -> tuple[str, ...]:
    trust = ", trust_remote_code=True" if custom_code else ""
    return (f"from transformers import {auto}", f'model = {auto}.from_pretrained("{folder}"{trust})')


def _adapter_facts(written: LoraExport) -> tuple[str, ...]:
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


def _adapter_code(model: Any, written: LoraExport) -> tuple[str, ...]:
    """Return the lines that load an adapter with its base, and merge it where it merges."""
    option = f", {written.bias_switch}=True" if written.bias_switch else ""
    lines = _base_code(_auto(model), model.config._name_or_path or "MODEL", option)
    merges = written.place != "adapter"
    if merges and written.tied:
        layer = f"base.{written.target}"
        lines = ["import torch", *lines, f"{layer}.weight = torch.nn.Parameter({layer}.weight.detach().clone())"]
    lines.append(_attached(written.folder))
    return (*lines, "model = model.merge_and_unload()  # optional") if merges else tuple(lines)


def _base_code(auto: str, name: str, option: str = "") -> list[str]:
    return [
        "from peft import PeftModel",
        f"from transformers import {auto}",
        f'base = {auto}.from_pretrained("{name}"{option})',
    ]


def _attached(folder: Path) -> str:
    return f'model = PeftModel.from_pretrained(base, "{folder}")'
