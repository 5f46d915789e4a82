"""Names of places in a model, and the modules they stand for."""

import re
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from repsurgery.errors import SiteError
from repsurgery.lm.sites.families import Paths, family_of, text_config
from repsurgery.lm.sites.wrappers import is_peft, outermost_models, unwrapped

__all__ = ["Role", "Site", "entrances", "is_conv1d", "last_mlp_input", "reading_model", "resolve_site", "site_names"]

Role = Literal["model", "peft", "whole", "encoder", "decoder"]
"""What an entrance is: a model, a PEFT wrapper of one, a whole encoder-decoder, or one of its halves."""

_NAMED = re.compile(r"(?:(encoder|decoder)\.)?(final|embeddings|layers\.(\d+)(?:\.(attn|mlp))?)")
_NAMES = '"final", "layers.N", "layers.N.attn", "layers.N.mlp", "embeddings"'


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """One place in one model.

    Attributes
    ----------
    name : str
        The name by which the caller asked for it.
    path : str
        The module's path inside the model.
    module : nn.Module
    side : {"output", "input"}
        Whether the state leaves or enters that module.
    width : int or None
        The number of features d there; None where it is known only after running the model.
    writer : str or None
        The path of the linear layer whose output is exactly this state; None where no single layer computes it.
    """

    name: str
    path: str
    module: nn.Module
    side: Literal["output", "input"]
    width: int | None
    writer: str | None


def resolve_site(model: nn.Module, name: str) -> Site:
    """Return the place in ``model`` called ``name``, or raise a `SiteError` that lists the available ones.

    Parameters
    ----------
    model : nn.Module
        A transformers model, with or without its output layer.
    name : str
        ``"final"``: after the last norm, before the output layer; for encoders the output of the last block.
        ``"layers.N"``: the residual stream after block N, counted from 0; it is the input of block N + 1.
        ``"layers.N.attn"``, ``"layers.N.mlp"``: the output of the attention or the MLP of block N, before it is
        normalised (in families with a norm there) or added to the residual stream.
        ``"embeddings"``: the residual stream before block 0.
        In an encoder-decoder, each name follows ``"encoder."`` or ``"decoder."``, as in "decoder.layers.3".
        The path of any other module means the output of that module.
    """
    model = unwrapped(model)
    modules = dict(model.named_modules())
    if not isinstance(name, str):
        raise SiteError(f"A site must be a string, not {name!r}. Sites are {_NAMES}, or the path of a module.")
    named = _NAMED.fullmatch(name)
    # a bare base model may itself have a module called "layers.3": it is the same place
    if named and _has_sites(model, named[1]):
        return _named_site(model, modules, named)
    if name in modules and name:
        linear = isinstance(modules[name], nn.Linear) or is_conv1d(modules[name])
        return Site(name, name, modules[name], "output", None, name if linear else None)
    raise SiteError(_explain(model, modules, name))


def site_names(model: nn.Module) -> list[str]:
    """Return the names of every known place of ``model``, from the embeddings to the end."""
    model = unwrapped(model)
    modules = dict(model.named_modules())
    halves = [half for half in (None, "encoder", "decoder") if _has_sites(model, half)]
    if not halves:
        raise SiteError(_explain(model, modules, "a list of sites"))
    return [name for half in halves for name in _names_of(model, modules, half)]


def _names_of(model: nn.Module, modules: dict[str, nn.Module], half: str | None) -> list[str]:
    family = family_of(model)
    parts = [*([".attn"] if family.attention else []), *([".mlp"] if family.mlp else []), ""]
    blocks = _blocks(model, modules, half)[1]
    inner = [f"layers.{i}{part}" for i in range(len(blocks)) for part in parts]
    return [f"{half}.{name}" if half else name for name in ("embeddings", *inner, "final")]


def last_mlp_input(model: nn.Module) -> Site:
    """Return the input of the last block's MLP, after the norm before it; the model must be a decoder or an encoder."""
    model = unwrapped(model)
    modules, family = dict(model.named_modules()), family_of(model)
    if not family.mlp or not _has_sites(model):
        raise SiteError(_explain(model, modules, "the input of the last MLP"))
    block = _blocks(model, modules)[1][-1]
    path = _first(modules, block, (family.mlp_reader, *family.mlp))
    if path is None:
        raise SiteError(_explain(model, modules, "the input of the last MLP"))
    return Site(f"{path} (input)", path, modules[path], "input", getattr(text_config(model), "hidden_size", None), None)


def reading_model(model: nn.Module) -> nn.Module:
    """Return the part of ``model`` below its output layer."""
    base = getattr(model, "base_model", None)
    return base if isinstance(base, nn.Module) else model


def entrances(model: nn.Module) -> list[tuple[nn.Module, Role]]:
    """Return the modules that may receive a call's mask and cache, from the outside in, and what each of them is."""
    modules: list[tuple[Any, Role]] = [(m, "peft") for m in model.modules() if is_peft(m)]
    inner: Any
    for inner in outermost_models(model):
        if getattr(getattr(inner, "config", None), "is_encoder_decoder", False) and hasattr(inner, "get_encoder"):
            modules += [(inner, "whole"), (reading_model(inner), "whole")]
            modules += [(inner.get_encoder(), "encoder"), (inner.get_decoder(), "decoder")]
        else:
            modules += [(inner, "model"), (_owner_of_blocks(inner), "model")]
    roles = {id(module): role for module, role in reversed(modules)}
    return [(module, roles.pop(id(module))) for module, _ in modules if id(module) in roles]


def _owner_of_blocks(model: nn.Module) -> nn.Module:
    if not _has_sites(model):
        return reading_model(model)
    return model.get_submodule(_blocks(model, dict(model.named_modules()))[0])


def _has_sites(model: nn.Module, half: str | None = None) -> bool:
    family = family_of(model)
    return bool(family.stems) and family.encoder_decoder == (half is not None)


def _named_site(model: nn.Module, modules: dict[str, nn.Module], named: re.Match[str]) -> Site:
    family = family_of(model)
    stem, blocks = _blocks(model, modules, named[1])
    width = getattr(text_config(model), "hidden_size", None)
    name, place = named[0], named[2]
    if place == "embeddings":
        return Site(name, blocks[0], modules[blocks[0]], "input", width, None)
    if place == "final":
        path = _first(modules, stem, (family.projection, *family.final)) or blocks[-1]
        return Site(name, path, modules[path], "output", getattr(modules[path], "out_features", width), None)
    number, part = int(named[3]), named[4]
    if number >= len(blocks):
        raise SiteError(
            f"There is no {name!r}: this {_kind(model)} has {len(blocks)} blocks, 'layers.0' to "
            f"'layers.{len(blocks) - 1}'. Choose one of them, or 'final'."
        )
    block = blocks[number]
    if part is None:
        return Site(name, block, modules[block], "output", width, None)
    paths, writers = (family.attention, family.attention_writer) if part == "attn" else (family.mlp, family.mlp_writer)
    inner = _first(modules, block, paths)
    if inner is None:
        raise SiteError(_explain(model, modules, name))
    return Site(name, inner, modules[inner], "output", width, _first(modules, block, writers))


def _blocks(model: nn.Module, modules: dict[str, nn.Module], half: str | None = None) -> tuple[str, list[str]]:
    """Return the path of the module that owns the blocks, and the path of each block."""
    family = family_of(model)
    for stem in (stem.format(half=half) for stem in family.stems):
        path = _join(stem, family.blocks)
        blocks = modules.get(path)
        if isinstance(blocks, nn.ModuleList) and len(blocks):
            return stem, [f"{path}.{i}" for i in range(len(blocks))]
    raise SiteError(_explain(model, modules, family.blocks))


def _first(modules: dict[str, nn.Module], root: str, paths: Paths) -> str | None:
    return next((_join(root, path) for path in paths if path and _join(root, path) in modules), None)


def _join(root: str, path: str) -> str:
    return f"{root}.{path}" if root else path


def is_conv1d(module: nn.Module) -> bool:
    """Return whether ``module`` is transformers' Conv1D, a linear layer whose weight is stored as (in, out)."""
    return type(module).__name__ == "Conv1D"


def _kind(model: nn.Module) -> str:
    return str(getattr(getattr(model, "config", None), "model_type", type(model).__name__))


def _explain(model: nn.Module, modules: dict[str, nn.Module], name: str) -> str:
    lists = [f"{path} ({len(m)} modules)" for path, m in modules.items() if isinstance(m, nn.ModuleList)]
    norms = [path for path in modules if "norm" in path.rsplit(".", 1)[-1] or path.endswith("ln_f")]
    top = [path for path, _ in model.named_children()]
    names = f"The family {_kind(model)!r} is not in the table of sites"
    if _has_sites(model):
        names = f"Sites of this model are {_NAMES}"
    elif _has_sites(model, "encoder"):
        names = f'Sites of this model are {_NAMES}, each after "encoder." or "decoder."'
    return (
        f"{type(model).__name__} has no site {name!r}. {names}. The model has: top modules {top}; lists of blocks "
        f"{lists[:3] or 'none'}; last norm {norms[-1:] or 'none'}. "
        "Give one of those names, or the path of a module from model.named_modules()."
    )
