"""Names of places in a model, and the modules they stand for."""

import re
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from repsurgery.errors import SiteError
from repsurgery.lm.sites.families import ARCHITECTURES, HALVES, Architecture, Paths
from repsurgery.lm.sites.wrappers import is_peft, outermost_models, unwrapped
from repsurgery.lm.steer.passes import Role

__all__ = ["Site", "entrances", "half_of", "reading_model", "resolve_site", "site_names", "unwrapped"]

_NAMED = re.compile(r"(?:(encoder|decoder)\.)?(final|embeddings|layers\.(\d+)(?:\.(attn|mlp))?)")
_NAMES = '"final", "layers.N", "layers.N.attn", "layers.N.mlp", "embeddings"'


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """One place in one model.

    Attributes
    ----------
    name : str
        As it was asked for.
    path : str
        The module's path inside the model.
    module : nn.Module
    side : {"output", "input"}
        Whether the state leaves or enters that module.
    width : int or None
        The number of features d there; None where only running the model would tell.
    writer : str or None
        The path of the linear layer whose output this state is, bit for bit; None where there is no single one.
    """

    name: str
    path: str
    module: nn.Module
    side: Literal["output", "input"]
    width: int | None
    writer: str | None


def resolve_site(model: nn.Module, name: str) -> Site:
    """Return the place in ``model`` called ``name``, or raise a `SiteError` that lists what there is.

    Parameters
    ----------
    model : nn.Module
        A transformers model, with or without its output layer.
    name : str
        ``"final"``: after the last norm, before the output layer; for encoders the output of the last block.
        ``"layers.N"``: the residual stream after block N, counted from 0; it is the input of block N + 1.
        ``"layers.N.attn"``, ``"layers.N.mlp"``: what attention or MLP of block N puts out, before it is normed
        (Gemma 2 and 3) or added to the stream.
        ``"embeddings"``: the residual stream before block 0.
        The same behind ``"encoder."`` or ``"decoder."`` in an encoder-decoder (T5, BART), as in "decoder.layers.3".
        Or the path of any module, whose output is meant.
    """
    model = unwrapped(model)
    modules = dict(model.named_modules())
    if not isinstance(name, str):
        raise SiteError(f"A site is a name, not {name!r}. Sites are {_NAMES}, or the path of a module.")
    named = _NAMED.fullmatch(name)
    # a bare base model may itself have a module called "layers.3": it is the same place
    if named and (layout := _layout(model, named[1])) is not None:
        return _named_site(model, modules, layout, named)
    if name in modules and name:
        return Site(name, name, modules[name], "output", None, name if _is_linear(modules[name]) else None)
    raise SiteError(_explain(model, modules, name))


def site_names(model: nn.Module) -> list[str]:
    """Return the names of every known place of ``model``, from the embeddings to the end."""
    model = unwrapped(model)
    modules = dict(model.named_modules())
    halves = [half for half in (None, "encoder", "decoder") if _layout(model, half) is not None]
    if not halves:
        raise SiteError(_explain(model, modules, "a list of sites"))
    return [name for half in halves for name in _names_of(model, modules, half)]


def _names_of(model: nn.Module, modules: dict[str, nn.Module], half: str | None) -> list[str]:
    layout = _layout(model, half)
    assert layout is not None
    parts = [*([".attn"] if layout.attention else []), *([".mlp"] if layout.mlp else []), ""]
    blocks = _blocks(model, modules, layout)[1]
    inner = [f"layers.{i}{part}" for i in range(len(blocks)) for part in parts]
    return [f"{half}.{name}" if half else name for name in ("embeddings", *inner, "final")]


def half_of(name: str) -> str | None:
    """Return "encoder" or "decoder" for a site of one half of an encoder-decoder, None for any other."""
    named = _NAMED.fullmatch(name)
    return named[1] if named else None


def reading_model(model: nn.Module) -> nn.Module:
    """Return the part of ``model`` below its output layer."""
    base = getattr(model, "base_model", None)
    return base if isinstance(base, nn.Module) else model


def entrances(model: nn.Module) -> list[tuple[nn.Module, Role]]:
    """Return the modules that may receive a call's mask and cache, from the outside in, and what each of them is."""
    found: list[tuple[Any, Role]] = [(m, "peft") for m in model.modules() if is_peft(m)]
    inner: Any
    for inner in outermost_models(model):
        if getattr(getattr(inner, "config", None), "is_encoder_decoder", False) and hasattr(inner, "get_encoder"):
            found += [(inner, "whole"), (reading_model(inner), "whole")]
            found += [(inner.get_encoder(), "encoder"), (inner.get_decoder(), "decoder")]
        else:
            found += [(inner, "model"), (_owner_of_blocks(inner), "model")]
    roles = {id(module): role for module, role in reversed(found)}
    return [(module, roles.pop(id(module))) for module, _ in found if id(module) in roles]


def _owner_of_blocks(model: nn.Module) -> nn.Module:
    layout = _layout(model)
    if layout is None:
        return reading_model(model)
    return model.get_submodule(_blocks(model, dict(model.named_modules()), layout)[0])


def _layout(model: nn.Module, half: str | None = None) -> Architecture | None:
    family = getattr(getattr(model, "config", None), "model_type", "")
    return HALVES.get(family, {}).get(half) if half else ARCHITECTURES.get(family)


def _named_site(model: nn.Module, modules: dict[str, nn.Module], layout: Architecture, named: re.Match[str]) -> Site:
    stem, blocks = _blocks(model, modules, layout)
    width = _hidden_size(model)
    name, place = named[0], named[2]
    if place == "embeddings":
        return Site(name, blocks[0], modules[blocks[0]], "input", width, None)
    if place == "final":
        path = _first(modules, stem, layout.final) or blocks[-1]
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
    paths, writers = (layout.attention, layout.attention_writer) if part == "attn" else (layout.mlp, layout.mlp_writer)
    found = _first(modules, block, paths)
    if found is None:
        raise SiteError(_explain(model, modules, name))
    return Site(name, found, modules[found], "output", width, _first(modules, block, writers))


def _blocks(model: nn.Module, modules: dict[str, nn.Module], layout: Architecture) -> tuple[str, list[str]]:
    for stem in layout.stems:
        path = _join(stem, layout.blocks)
        found = modules.get(path)
        if isinstance(found, nn.ModuleList) and len(found):
            return stem, [f"{path}.{i}" for i in range(len(found))]
    raise SiteError(_explain(model, modules, layout.blocks))


def _first(modules: dict[str, nn.Module], root: str, paths: Paths) -> str | None:
    found = (_join(root, path) for path in paths if path and _join(root, path) in modules)
    return next(found, None)


def _join(root: str, path: str) -> str:
    return f"{root}.{path}" if root else path


def _hidden_size(model: nn.Module) -> int | None:
    config: Any = getattr(model, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    size = getattr(text, "hidden_size", None)
    return int(size) if size is not None else None


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"


def _kind(model: nn.Module) -> str:
    return str(getattr(getattr(model, "config", None), "model_type", type(model).__name__))


def _explain(model: nn.Module, modules: dict[str, nn.Module], name: str) -> str:
    lists = [f"{path} ({len(m)} modules)" for path, m in modules.items() if isinstance(m, nn.ModuleList)]
    norms = [path for path in modules if "norm" in path.rsplit(".", 1)[-1] or path.endswith("ln_f")]
    top = [path for path, _ in model.named_children()]
    names = f"The family {_kind(model)!r} is not in the table of sites"
    if _layout(model) is not None:
        names = f"Sites of this model are {_NAMES}"
    elif _layout(model, "encoder") is not None:
        names = f'Sites of this model are {_NAMES}, each behind "encoder." or "decoder."'
    return (
        f"{type(model).__name__} has no site {name!r}. {names}. Found: top modules {top}; lists of blocks "
        f"{lists[:3] or 'none'}; last norm {norms[-1:] or 'none'}. "
        "Give one of those names, or the path of a module from model.named_modules()."
    )
