"""Where a map at a site can enter the weights, and checks that it can.

It enters the one layer that writes or reads the whole state, if there is one, as one map for every vector, of a
structure that this layer can hold.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from repsurgery.affine import AffineMap
from repsurgery.errors import FoldError, ShapeError, SiteError
from repsurgery.lm.fold.weights import diagonal_of, is_linear, is_quantised, sizes
from repsurgery.lm.sites.families import family_of
from repsurgery.lm.sites.names import Site, reading_model, resolve_site, site_names
from repsurgery.lm.sites.wrappers import unwrapped
from repsurgery.lm.steer.forward_context import steering_in_force
from repsurgery.lm.steer.row_steering import as_steering

__all__ = [
    "FoldPoint",
    "checked_fold_point",
    "find_fold_point",
    "fold_points",
    "foldable_sites",
    "nearest_foldable",
    "require_plain",
    "require_unquantised",
    "single_map",
]

UNQUANTISED = (
    "Steer with hooks, which work on quantised models (lm.steer), or load the model without quantisation: its original "
    "weights, without quantization_config."
)
"""What to do where quantised weights cannot hold a map."""


@dataclass(frozen=True, slots=True)
class FoldPoint:
    """The layer into which a map at one site of one model can be folded.

    Attributes
    ----------
    site : str
    kind : {"writer", "reader", "norm", "stream"}
        ``writer``: the state is the output of a linear layer. ``reader``: a single linear layer reads it. Both hold
        any affine map. ``norm``: it is the output of a LayerNorm, which holds diagonal maps. ``stream``: it is a sum
        to which a linear layer contributes, which holds translations.
    path : str
        Path of the layer whose weights change.
    width : int
        The number of features d of the state.
    norm : str or None
        Path of the LayerNorm whose output is read by that linear layer and by nothing else.
    """

    site: str
    kind: Literal["writer", "reader", "norm", "stream"]
    path: str
    width: int
    norm: str | None = None


def find_fold_point(model: nn.Module, name: str) -> FoldPoint:
    """Return the fold point of the site ``name``, or raise a `FoldError` that names foldable sites."""
    model = unwrapped(model)
    point = _point(model, dict(model.named_modules()), resolve_site(model, name))
    if point is None:
        raise FoldError(
            f"No single weight of {type(model).__name__} writes or reads the whole state at {name!r}, so a map there "
            f"cannot be folded. {nearest_foldable(model, name)} Or steer with hooks: lm.steer."
        )
    return point


def foldable_sites(model: nn.Module) -> list[str]:
    """Return the named sites of ``model`` where every affine map can be folded exactly, from bottom to top.

    At other sites `fold` accepts maps of simple structure: translations at ``"layers.N"`` where a block ends in a
    plain sum, translations and diagonal maps where it ends in a LayerNorm.
    """
    return [point.site for point in fold_points(model) if point.kind in ("writer", "reader")]


def fold_points(model: nn.Module) -> list[FoldPoint]:
    """Return the fold point of every named site of ``model`` that has one, from bottom to top."""
    model = unwrapped(model)
    modules = dict(model.named_modules())
    points = []
    for name in site_names(model):
        with suppress(FoldError):
            points.append(_point(model, modules, resolve_site(model, name)))
    return [point for point in points if point is not None]


def nearest_foldable(model: nn.Module, name: str, among: list[str] | None = None, *, where: str = "") -> str:
    """Return a sentence that names the sites nearest to ``name``, out of ``among`` or of all foldable ones.

    ``where`` is added to the sentence, as in " on disk".
    """
    try:
        names = foldable_sites(model) if among is None else among
        order = {site: i for i, site in enumerate(site_names(model))}
    except SiteError:
        return "In a model of unknown family, name a linear layer by its path, preferably one with a bias."
    if not names:
        return f"No named site of this model can hold it{where}."
    here = order.get(name, len(order))
    nearest = sorted(names, key=lambda other: abs(order[other] - here))[:4]
    listed = ", ".join(repr(other) for other in sorted(nearest, key=order.__getitem__))
    more = f" ({len(names)} in all)" if len(names) > len(nearest) else ""
    return f"The nearest sites that can hold it{where} are {listed}{more}."


def _point(model: nn.Module, modules: dict[str, nn.Module], site: Site) -> FoldPoint | None:
    return _final(model, modules, site) if site.name == "final" else _inner(model, modules, site)


def _inner(model: nn.Module, modules: dict[str, nn.Module], site: Site) -> FoldPoint | None:
    if site.writer is not None:
        return _linear_point(modules, site.name, "writer", site.writer)
    if _is_layer_norm(site.module):
        return _norm_point(modules, site.name, site.path)
    if site.side == "input" or not site.name.startswith("layers."):
        return None
    norm = _block_norm(model, modules, site.path)
    if norm is not None:
        return _norm_point(modules, site.name, norm)
    if not family_of(model).ends_in_sum:
        return None
    mlp = resolve_site(model, f"{site.name}.mlp") if site.name.count(".") == 1 else None
    return _linear_point(modules, site.name, "stream", mlp.writer) if mlp is not None and mlp.writer else None


def _final(model: nn.Module, modules: dict[str, nn.Module], site: Site) -> FoldPoint | None:
    if is_linear(site.module) or is_quantised(site.module):
        # the projection writes the state, and nothing else reads the norm before it
        family = family_of(model)
        before = site.path.removesuffix(family.projection) + family.final[0]
        last_block = resolve_site(model, site_names(model)[-2]).path
        norm = before if _is_layer_norm(modules.get(before)) else _block_norm(model, modules, last_block)
        return _linear_point(modules, site.name, "writer", site.path, norm)
    norm = site.path if _is_layer_norm(site.module) else _block_norm(model, modules, site.path)
    reader = _reader(model, modules)
    if reader is not None:
        return _linear_point(modules, site.name, "reader", reader, norm)
    return _norm_point(modules, site.name, norm) if norm is not None else None


def _reader(model: nn.Module, modules: dict[str, nn.Module]) -> str | None:
    """Return the path of the one linear layer that reads the final state; None where there are several or none."""
    base = reading_model(model)
    if getattr(base, "pooler", None) is not None:
        return None
    heads = [
        name
        for name, child in model.named_children()
        if child is not base and (is_quantised(child) or any(True for _ in child.parameters()))
    ]
    if base is model or len(heads) != 1:
        return None
    paths = [f"{heads[0]}.{inner}".removesuffix(".") for inner in family_of(model).head_readers]
    return next((path for path in paths if is_linear(modules.get(path)) or is_quantised(modules.get(path))), None)


def _block_norm(model: nn.Module, modules: dict[str, nn.Module], block: str) -> str | None:
    family = family_of(model)
    if not family.block_norm or getattr(model.config, family.pre_norm_switch, False):
        return None
    path = f"{block}.{family.block_norm}"
    return path if _is_layer_norm(modules.get(path)) else None


def _linear_point(
    modules: dict[str, nn.Module],
    site: str,
    kind: Literal["writer", "reader", "stream"],
    path: str,
    norm: str | None = None,
) -> FoldPoint:
    linear = modules[path]
    if is_quantised(linear):
        raise FoldError(
            f"The weight behind {site!r} ({path}, a {type(linear).__name__}) is quantised, so nothing can be folded "
            f"into it. {UNQUANTISED}"
        )
    if not is_linear(linear):
        raise FoldError(
            f"The weight behind {site!r} ({path}, a {type(linear).__name__}) is wrapped or not in memory, "
            "so nothing can be folded into it. Load the model whole, merge adapters first (merge_and_unload), or steer "
            "with hooks."
        )
    out, inner = sizes(linear)
    return FoldPoint(site, kind, path, inner if kind == "reader" else out, norm)


def _norm_point(modules: dict[str, nn.Module], site: str, path: str) -> FoldPoint:
    return FoldPoint(site, "norm", path, modules[path].get_parameter("weight").numel())


def _is_layer_norm(module: nn.Module | None) -> bool:
    # other norms, such as RMSNorm, have no bias and do not centre
    return isinstance(module, nn.LayerNorm) and module.weight is not None and module.bias is not None


def require_plain(model: nn.Module) -> None:
    """Refuse a model that does not compute with its weights alone: one with adapters, or one being steered."""
    if unwrapped(model) is not model or getattr(model, "_hf_peft_config_loaded", False):
        raise FoldError(
            f"This {type(model).__name__} has PEFT adapters, which a new weight would ignore. Merge them first: "
            "model.merge_and_unload()."
        )
    if steering_in_force(model, in_any_thread=True):
        raise FoldError("This model is being steered at the moment. Leave the `with lm.steer(...)` block first.")


def require_unquantised(model: nn.Module) -> None:
    """Refuse a model with quantised layers, which transformers would not save and load as it is in memory."""
    quantised = next((name for name, module in model.named_modules() if is_quantised(module)), None)
    if quantised is not None:
        kind = type(model.get_submodule(quantised)).__name__
        raise FoldError(
            f"This {type(model).__name__} has quantised layers ({quantised}, a {kind}), and a folded model is saved in "
            f"plain weights. {UNQUANTISED}"
        )


def single_map(steering: Any, strength: float, *, caller: str) -> AffineMap:
    """Return the one map by which ``steering`` steers every vector, at ``strength``."""
    function = as_steering(steering, caller=caller)
    if not function.steers_all:
        raise FoldError(
            f"This steering function asks its {function.gate.kind} gate which vectors to steer, so it is not affine "
            "and no weight can hold it. Fit with gate='always', pass the map itself (estimator.map_), or steer with "
            "hooks: lm.steer."
        )
    if strength != 1:
        function = function.at(strength)
    return next(iter(function.maps.values()))


def checked_fold_point(model: nn.Module, m: AffineMap, site: str) -> FoldPoint:
    """Return the fold point of ``site``, or raise an error if it cannot hold a map like ``m``."""
    point = find_fold_point(model, site)
    if m.dim != point.width:
        raise ShapeError(
            f"The map for site {site!r} has {m.dim} features; {type(model).__name__} has {point.width} there. "
            "Fit it on vectors extracted at this site of this model."
        )
    scale = diagonal_of(m)
    if point.kind == "stream" and (scale is None or (scale != 1).any()):
        raise FoldError(_refusal(model, point, m, "a sum of several layers' outputs", "translations"))
    if point.kind == "norm" and scale is None:
        raise FoldError(_refusal(model, point, m, "the output of a LayerNorm", "translations and diagonal maps"))
    return point


def _refusal(model: nn.Module, point: FoldPoint, m: AffineMap, state: str, accepted: str) -> str:
    return (
        f"The state at {point.site!r} is {state}, which holds {accepted} only, not a {m.kind} map. "
        f"{nearest_foldable(model, point.site)} Or steer with hooks: lm.steer."
    )
