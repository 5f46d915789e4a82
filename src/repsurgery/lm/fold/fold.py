"""Fold an affine map into the weights: the steered model as a plain model that any server can run."""

import copy
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import torch
from torch import nn
from transformers import PretrainedConfig

from repsurgery.affine import AffineMap
from repsurgery.errors import FoldError
from repsurgery.lm.fold.bias_placement import make_room_by_flag, portable_sites, put_into_norm
from repsurgery.lm.fold.fold_checks import checked_seam, diagonal_of, only_map, require_plain
from repsurgery.lm.fold.fold_points import Seam, nearest_foldable
from repsurgery.lm.fold.weights import bias_of, map_after, map_before, matrix_of, store
from repsurgery.lm.steer.placing import place
from repsurgery.lm.steer.torch_maps import to_tensor

__all__ = ["NotPortable", "fold", "portability"]

Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class NotPortable:
    """Stands in for ``save_pretrained`` of a folded model that would reload differently.

    Attributes
    ----------
    biases : tuple of str
        Paths of the linear layers that carry a bias their architecture does not have.
    message : str
    """

    biases: tuple[str, ...]
    message: str

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse to save."""
        raise FoldError(self.message)


def fold(model: Model, steering: Any, site: str | None = None, *, strength: float | None = None) -> Model:
    """Return a new plain model that computes what ``model`` computes under ``steer(model, {site: steering})``.

    Parameters
    ----------
    model : nn.Module
        A transformers model; it is left as it is and shares nothing with the result.
    steering : AffineMap, or a SteeringFunction or fitted estimator that steers every vector by one map
        x ↦ Wx + b on the d features of the site. A gated function is not affine and is refused.
    site : str or None
        One of `foldable_sites`, or the path of a linear layer. Translations also fold at ``"layers.N"`` where a block
        ends in a bare sum; where it ends in a LayerNorm, translations and diagonal maps do. None is the site that the
        steering's origin names.
    strength : float or None
        0 leaves the states untouched, 1 is the map; in between lies the geodesic. None is what the steering's origin
        asks for, else 1.

    Returns
    -------
    nn.Module
        Of the same class, in the same dtype and on the same devices, in evaluation or training mode like ``model``.

    Raises
    ------
    FoldError
        Where no single weight holds the map; the message names the nearest sites that do.

    Notes
    -----
    Weights are multiplied in float64 and rounded once to the dtype of the model. At ``"final"`` the layer that reads
    the state takes the map, so logits are those of the steered model while the last hidden state is not steered; the
    output layer is untied from the embeddings. The sites folded are noted in ``config.repsurgery_folded``.

    The constant b goes where it survives saving: into an existing bias; at ``"final"`` into the last LayerNorm's bias;
    or into biases that a flag of the configuration creates. Where the architecture has no such place it works in
    memory only, and ``save_pretrained`` of the result raises `FoldError`: see `save_folded`.

    Guarantees
    ----------
    Folded and hooked logits agree (test_folding_equals_hooking).
    What is saved reloads the same, or saving is refused (test_a_saved_fold_reloads_the_same_or_is_refused).
    The original model keeps every bit (test_the_original_model_keeps_every_bit).
    """
    require_plain(model)
    at = place(model, steering, site, strength, caller="fold")
    m, site = only_map(at.steering, at.strength, caller="fold"), at.site
    seam = checked_seam(model, m, site)
    earlier = _folded_at(model)
    if seam.kind == "reader" and site in earlier:
        raise FoldError(
            f"A map is already folded at {site!r}, and the state there is still the unsteered one, so a second map "
            "would act before the first. Compose them (second @ first) and fold the original model."
        )
    folded = copy.deepcopy(model)
    with torch.no_grad():
        constant = _absorb(folded, seam, m)
        if constant is not None:
            _settle(folded, seam, m, constant)
    if isinstance(getattr(folded, "config", None), PretrainedConfig):
        folded.config.repsurgery_folded = [*earlier, site]  # type: ignore[union-attr]
    return folded


def portability(model: nn.Module) -> NotPortable | None:
    """Return why ``model`` cannot be saved as a plain model; None if it can."""
    found = vars(model).get("save_pretrained")
    return found if isinstance(found, NotPortable) else None


def _folded_at(model: nn.Module) -> list[str]:
    return list(getattr(getattr(model, "config", None), "repsurgery_folded", None) or ())


def _absorb(model: nn.Module, seam: Seam, m: AffineMap) -> torch.Tensor | None:
    """Change the weight; return the constant (out,) that the layer must add, or None if that is done or zero."""
    layer, what = model.get_submodule(seam.path), f"The weight of {seam.path}, folded at {seam.site!r},"
    shift, old = to_tensor(m.bias), bias_of(layer)
    match seam.kind:
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
    _untie(model, f"{seam.path}.weight")
    if old is not None:
        store(layer, "bias", constant, what=f"The bias of {seam.path}, folded at {seam.site!r},")
        return None
    return constant if constant.any() else None


def _settle(model: nn.Module, seam: Seam, m: AffineMap, constant: torch.Tensor) -> None:
    """Give a constant for which the layer has no bias a place; guard ``save_pretrained`` where there is none."""
    if seam.norm is not None:
        put_into_norm(model, seam, m, constant)
        return
    at_home = make_room_by_flag(model, seam.path)
    store(model.get_submodule(seam.path), "bias", constant, what=f"The bias of {seam.path}")
    if not at_home and hasattr(model, "save_pretrained"):
        earlier = portability(model)
        biases = (*(earlier.biases if earlier else ()), seam.path)
        vars(model)["save_pretrained"] = NotPortable(biases, _no_home(model, seam))


def _no_home(model: nn.Module, seam: Seam) -> str:
    sites = portable_sites(model)
    instead = nearest_foldable(model, seam.site, sites, where=" on disk")
    return (
        f"{type(model).__name__} has no bias at {seam.path}, where this model carries the constant of the map folded "
        f"at {seam.site!r}: reloading would drop it without an error and change the logits. {instead} "
        f"{'Fold at one of them, or save' if sites else 'Save'} with custom code: "
        "lm.save_folded(model, folder, custom_code=True)."
    )


def _untie(model: nn.Module, name: str) -> None:
    """Make known that the parameter ``name`` is no longer shared with another."""
    tied: dict[str, str] = getattr(model, "all_tied_weights_keys", None) or {}
    if not any(name in pair for pair in tied.items()):
        return
    config: Any = model.config
    for part in (config, config.get_text_config()):
        part.tie_word_embeddings = False
    model.all_tied_weights_keys = {k: v for k, v in tied.items() if name not in (k, v)}  # type: ignore[assignment]
