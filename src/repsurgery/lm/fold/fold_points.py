"""Where a map at a site can enter the weights: the one matrix that writes or reads the whole state, if there is one."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from torch import nn

from repsurgery.errors import FoldError, SiteError
from repsurgery.lm.fold.weights import is_linear, sizes
from repsurgery.lm.sites.names import Site, reading_model, resolve_site, site_names, unwrapped

__all__ = ["Seam", "find_seam", "foldable_sites", "model_type", "nearest_foldable", "seams"]

SUMS_BARE = frozenset(
    {"falcon", "gemma", "gpt2", "gpt_neox", "llama", "mistral", "opt", "phi", "phi3", "qwen2", "qwen3"}
)
"""Families whose block ends in stream + MLP output, with nothing after the sum."""

NORMED_SUMS: Mapping[str, str] = MappingProxyType(
    {"bert": "output.LayerNorm", "opt": "final_layer_norm", "roberta": "output.LayerNorm"}
)
"""Families whose block may end in a LayerNorm after the sum: its path inside the block."""

HEAD_READERS = ("predictions.transform.dense", "dense")
"""Paths, inside a masked-language-model head, of the one layer that reads the final state."""


@dataclass(frozen=True, slots=True)
class Seam:
    """How one site of one model meets its weights.

    Attributes
    ----------
    site : str
    kind : {"writer", "reader", "norm", "stream"}
        ``writer``: the state is the output of a linear layer. ``reader``: one linear layer alone reads it. Both hold
        any affine map. ``norm``: it is the output of a LayerNorm, which holds diagonal maps. ``stream``: it is a sum
        to which a linear layer contributes, which holds translations.
    path : str
        Of the layer whose weights change.
    width : int
        The number of features d of the state.
    norm : str or None
        Of the LayerNorm whose output that linear layer, and nothing else, reads.
    """

    site: str
    kind: Literal["writer", "reader", "norm", "stream"]
    path: str
    width: int
    norm: str | None = None


def find_seam(model: nn.Module, name: str) -> Seam:
    """Return how the site ``name`` meets the weights of ``model``, or raise a `FoldError` naming foldable sites."""
    model = unwrapped(model)
    seam = _seam(model, dict(model.named_modules()), resolve_site(model, name))
    if seam is None:
        raise FoldError(
            f"No single weight of {type(model).__name__} writes or reads the whole state at {name!r}, so a map there "
            f"cannot be folded. {nearest_foldable(model, name)} Or steer with hooks: lm.steer."
        )
    return seam


def foldable_sites(model: nn.Module) -> list[str]:
    """Return the named sites of ``model`` where every affine map can be folded exactly, from bottom to top.

    Elsewhere `fold` may still hold a map of simple structure: translations at ``"layers.N"`` where a block ends in a
    bare sum, translations and diagonal maps where it ends in a LayerNorm.
    """
    return [seam.site for seam in seams(model) if seam.kind in ("writer", "reader")]


def seams(model: nn.Module) -> list[Seam]:
    """Return every seam at a named site of ``model``, from bottom to top."""
    model = unwrapped(model)
    modules = dict(model.named_modules())
    found = []
    for name in site_names(model):
        with suppress(FoldError):
            found.append(_seam(model, modules, resolve_site(model, name)))
    return [seam for seam in found if seam is not None]


def nearest_foldable(model: nn.Module, name: str, among: list[str] | None = None, *, where: str = "") -> str:
    """Return a sentence that names the foldable sites nearest to ``name``; ``where`` says what they are good for."""
    try:
        names = foldable_sites(model) if among is None else among
        order = {site: i for i, site in enumerate(site_names(model))}
    except SiteError:
        return "In a model of unknown family, name a linear layer by its path, best one with a bias."
    if not names:
        return f"No named site of this model can hold it{where}."
    here = order.get(name, len(order))
    nearest = sorted(names, key=lambda other: abs(order[other] - here))[:4]
    listed = ", ".join(repr(other) for other in sorted(nearest, key=order.__getitem__))
    more = f" ({len(names)} in all)" if len(names) > len(nearest) else ""
    return f"The nearest sites that can hold it{where} are {listed}{more}."


def _seam(model: nn.Module, modules: dict[str, nn.Module], site: Site) -> Seam | None:
    return _final(model, modules, site) if site.name == "final" else _inner(model, modules, site)


def _inner(model: nn.Module, modules: dict[str, nn.Module], site: Site) -> Seam | None:
    if site.writer is not None:
        return _linear_seam(modules, site.name, "writer", site.writer)
    if _is_layer_norm(site.module):
        return _norm_seam(modules, site.name, site.path)
    if site.side == "input" or not site.name.startswith("layers."):
        return None
    norm = _block_norm(model, modules, site.path)
    if norm is not None:
        return _norm_seam(modules, site.name, norm)
    if model_type(model) not in SUMS_BARE:
        return None
    mlp = resolve_site(model, f"{site.name}.mlp") if site.name.count(".") == 1 else None
    return _linear_seam(modules, site.name, "stream", mlp.writer) if mlp is not None and mlp.writer else None


def _final(model: nn.Module, modules: dict[str, nn.Module], site: Site) -> Seam | None:
    last = site_names(model)[-2]
    block = resolve_site(model, last)
    if is_linear(site.module):
        # OPT-350m projects down to the embedding width: the projection writes the state and alone reads the norm
        before = site.path.rpartition(".")[0] + ".final_layer_norm"
        norm = before if _is_layer_norm(modules.get(before)) else _block_norm(model, modules, block.path)
        return _linear_seam(modules, site.name, "writer", site.path, norm)
    norm = site.path if _is_layer_norm(site.module) else _block_norm(model, modules, site.path)
    reader = _reader(model, modules)
    if reader is not None:
        return _linear_seam(modules, site.name, "reader", reader, norm)
    return _norm_seam(modules, site.name, norm) if norm is not None else None


def _reader(model: nn.Module, modules: dict[str, nn.Module]) -> str | None:
    """Return the path of the one linear layer that reads the final state; None where there are several or none."""
    base = reading_model(model)
    if getattr(base, "pooler", None) is not None:
        return None
    heads = [
        name for name, child in model.named_children() if child is not base and any(True for _ in child.parameters())
    ]
    if base is model or len(heads) != 1:
        return None
    head = heads[0]
    paths = [head, *(f"{head}.{inner}" for inner in HEAD_READERS)]
    return next((path for path in paths if is_linear(modules.get(path))), None)


def _block_norm(model: nn.Module, modules: dict[str, nn.Module], block: str) -> str | None:
    inner = NORMED_SUMS.get(model_type(model))
    if inner is None or getattr(model.config, "do_layer_norm_before", False):
        return None
    path = f"{block}.{inner}"
    return path if _is_layer_norm(modules.get(path)) else None


def _linear_seam(
    modules: dict[str, nn.Module],
    site: str,
    kind: Literal["writer", "reader", "stream"],
    path: str,
    norm: str | None = None,
) -> Seam:
    linear = modules[path]
    if not is_linear(linear):
        raise FoldError(
            f"The weight behind {site!r} ({path}, a {type(linear).__name__}) is quantised, wrapped or not in memory, "
            "so nothing can be folded into it. Load the model unquantised and whole, merge adapters first "
            "(merge_and_unload), or steer with hooks."
        )
    out, inner = sizes(linear)
    return Seam(site, kind, path, inner if kind == "reader" else out, norm)


def _norm_seam(modules: dict[str, nn.Module], site: str, path: str) -> Seam:
    return Seam(site, "norm", path, modules[path].get_parameter("weight").numel())


def _is_layer_norm(module: nn.Module | None) -> bool:
    # anything else, an RMSNorm above all, has no bias and does not centre
    return isinstance(module, nn.LayerNorm) and module.weight is not None and module.bias is not None


def model_type(model: nn.Module) -> str:
    """Return the family's name in the model's configuration; empty where there is none."""
    return str(getattr(getattr(model, "config", None), "model_type", ""))
