"""Fold an affine map into the weights: the result is a plain model that any server can run."""

import copy
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import torch
from torch import nn
from transformers import PretrainedConfig

from repsurgery.affine import AffineMap
from repsurgery.errors import FoldError
from repsurgery.lm.fold.bias_placement import add_bias_by_switch, place_in_norm, portable_sites
from repsurgery.lm.fold.fold_points import FoldPoint, checked_fold_point, nearest_foldable, require_plain, single_map
from repsurgery.lm.fold.weights import bias_of, diagonal_of, is_tied, map_after, map_before, matrix_of, store
from repsurgery.lm.steer.placing import weight_placement
from repsurgery.lm.steer.torch_maps import to_tensor

__all__ = ["NotPortable", "fold", "fold_target", "portability"]

Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class NotPortable:
    """Replaces ``save_pretrained`` of a folded model that would reload differently.

    Attributes
    ----------
    biases : tuple of str
        Paths of the linear layers with a bias that their architecture does not have.
    message : str
    """

    biases: tuple[str, ...]
    message: str

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse to save."""
        raise FoldError(self.message)


def fold(
    model: Model, steering: Any, site: str | None = None, *, strength: float | None = None, scale: float = 1.0
) -> Model:
    """Return a new plain model that computes what ``model`` computes under ``steer(model, {site: steering})``.

    Parameters
    ----------
    model : nn.Module
        A transformers model; it is not changed, and it shares no memory with the result.
    steering : AffineMap, or a SteeringFunction or fitted estimator that steers every vector by one map
        x ↦ Wx + b on the d features of the site. A gated function is not affine and is refused.
        Or a `Placement`, or a list of them at one site, which are composed; they state site and strength themselves.
    site : str or None
        One of `foldable_sites`, or the path of a linear layer. At ``"layers.N"`` translations can also be folded where
        a block ends in a plain sum, and translations and diagonal maps where it ends in a LayerNorm. None uses the
        site that the steering's origin names.
    strength : float or None
        0 leaves the states unchanged, 1 applies the map, and values in between follow the geodesic. None uses the
        strength of the steering's origin, else 1.
    scale : float
        Multiplies that strength; see `steer`.

    Returns
    -------
    nn.Module
        Of the same class, in the same dtype and on the same devices, in evaluation or training mode like ``model``.

    Raises
    ------
    FoldError
        Where no single weight can hold the map; the message names the nearest sites that can.

    Notes
    -----
    Weights are multiplied in float64 and rounded once to the dtype of the model. At ``"final"`` the map is folded into
    the layer that reads the state, so the logits are those of the steered model while the last hidden state is not
    steered; the output layer is untied from the embeddings. ``config.repsurgery_folded`` lists the folded sites.

    The constant b is placed where it survives saving: in an existing bias, at ``"final"`` in the bias of the last
    LayerNorm, or in biases that a switch of the configuration creates. Where the architecture has no such place, the
    result works in memory only, and its ``save_pretrained`` raises `FoldError`: see `save_folded`.

    Guarantees
    ----------
    Folded and hooked logits agree (test_folding_equals_hooking).
    What is saved reloads the same, or saving is refused (test_a_saved_fold_reloads_the_same_or_is_refused).
    The original model keeps every bit (test_the_original_model_keeps_every_bit).
    """
    require_plain(model)
    at = weight_placement(model, steering, site, strength, scale, caller="fold")
    m, site = single_map(at.function, at.strength, caller="fold"), at.site
    point = fold_target(model, m, site)
    folded = copy.deepcopy(model)
    with torch.no_grad():
        constant = _change_weight(folded, point, m)
        if constant is not None:
            _place_constant(folded, point, m, constant)
    if isinstance(getattr(folded, "config", None), PretrainedConfig):
        folded.config.repsurgery_folded = [*_folded_at(model), site]  # type: ignore[union-attr]
    return folded


def fold_target(model: nn.Module, m: AffineMap, site: str) -> FoldPoint:
    """Return the layer into which `fold` puts ``m`` at ``site``, or raise an error where it does not."""
    point = checked_fold_point(model, m, site)
    if point.kind == "reader" and site in _folded_at(model):
        raise FoldError(
            f"A map is already folded at {site!r}, and the state there is still the unsteered one, so a second map "
            "would act before the first. Compose them (second @ first) and fold the original model."
        )
    return point


def portability(model: nn.Module) -> NotPortable | None:
    """Return why ``model`` cannot be saved as a plain model; None if it can."""
    guard = vars(model).get("save_pretrained")
    return guard if isinstance(guard, NotPortable) else None


def _folded_at(model: nn.Module) -> list[str]:
    return list(getattr(getattr(model, "config", None), "repsurgery_folded", None) or ())


def _change_weight(model: nn.Module, point: FoldPoint, m: AffineMap) -> torch.Tensor | None:
    """Change the weight; return the constant (out,) that is still to be added, or None if there is none."""
    layer, what = model.get_submodule(point.path), f"The weight of {point.path}, folded at {point.site!r},"
    shift, old = to_tensor(m.bias), bias_of(layer)
    match point.kind:
        case "norm":
            scale = to_tensor(diagonal_of(m))
            store(layer, "weight", scale * layer.get_parameter("weight").cpu().double(), what=what)
            constant = shift if old is None else scale * old + shift
        case "stream":
            constant = shift if old is None else old + shift
        case "writer":
            constant = shift if old is None else map_after(m, old[:, None])[:, 0] + shift
            store(layer, "weight", map_after(m, matrix_of(layer)), what=what)
        case "reader":
            weight, added = map_before(m, layer)
            constant = added if old is None else old + added
            store(layer, "weight", weight, what=what)
    _untie(model, f"{point.path}.weight")
    if old is not None:
        store(layer, "bias", constant, what=f"The bias of {point.path}, folded at {point.site!r},")
        return None
    return constant if constant.any() else None


def _place_constant(model: nn.Module, point: FoldPoint, m: AffineMap, constant: torch.Tensor) -> None:
    """Place a constant for which the layer has no bias; block ``save_pretrained`` where it would be lost on disk."""
    if point.norm is not None:
        place_in_norm(model, point, m, constant)
        return
    portable = add_bias_by_switch(model, point.path)
    store(model.get_submodule(point.path), "bias", constant, what=f"The bias of {point.path}")
    if not portable and hasattr(model, "save_pretrained"):
        earlier = portability(model)
        biases = (*(earlier.biases if earlier else ()), point.path)
        vars(model)["save_pretrained"] = NotPortable(biases, _not_portable(model, point))


def _not_portable(model: nn.Module, point: FoldPoint) -> str:
    sites = portable_sites(model)
    instead = nearest_foldable(model, point.site, sites, where=" on disk")
    return (
        f"{type(model).__name__} has no bias at {point.path}, where this model holds the constant of the map folded "
        f"at {point.site!r}: reloading would drop it without an error and change the logits. {instead} "
        f"{'Fold at one of them, or save' if sites else 'Save'} with custom code: "
        "lm.save_folded(model, folder, custom_code=True)."
    )


def _untie(model: nn.Module, name: str) -> None:
    """Record in the model and its configuration that the parameter ``name`` is no longer shared with another."""
    if not is_tied(model, name):
        return
    config: Any = model.config
    for part in (config, config.get_text_config()):
        part.tie_word_embeddings = False
    tied: Any = model.all_tied_weights_keys
    model.all_tied_weights_keys = {k: v for k, v in tied.items() if name not in (k, v)}  # type: ignore[assignment]
