"""Export a saved steering: as a folded model, a LoRA adapter or a control vector of llama.cpp."""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path

from torch import nn

import repsurgery as rs
from repsurgery import lm
from repsurgery.checkpoint import added_files
from repsurgery.errors import FoldError, OptionsError, OriginWarning, ParameterError
from repsurgery.gates import AlwaysGate
from repsurgery.lm.fold.bias_placement import portable_sites
from repsurgery.lm.fold.fold import portability
from repsurgery.lm.fold.fold_points import UNQUANTISED, nearest_foldable, single_map
from repsurgery.lm.fold.gguf import gguf_package
from repsurgery.lm.fold.lora import peft_package
from repsurgery.lm.fold.lora_factors import check_rank, lora_point, low_rank
from repsurgery.lm.fold.targets import TargetName, export_targets, nearest_targets
from repsurgery.lm.fold.weights import is_quantised
from repsurgery.lm.load.models import DEFAULT_MODEL
from repsurgery.lm.load.origin import architecture
from repsurgery.lm.steer.early import check_places
from repsurgery.lm.steer.placing import placements
from repsurgery.lm.steer.positions import Positions
from repsurgery.outputs import check_new_file, check_new_folder
from repsurgery.workflows.loading import adapter_code, adapter_facts, control_vector_code, folder_code
from repsurgery.workflows.steerings import Opened, recognised

__all__ = ["Exported", "export_steering"]

HOOKS = "steer with hooks: repsurgery generate or repsurgery serve."


@dataclass(frozen=True, slots=True)
class Exported:
    """A steering on disk, in a form that other programs load.

    Attributes
    ----------
    path : Path
        The folder or file.
    to : {"folder", "lora", "gguf"}
    facts : tuple of str
        Sentences on what was written: rank and error, and whether it merges.
    code : tuple of str
        The lines, of Python or a shell, that load it.
    exact : bool
        Whether it computes what hooks compute, up to rounding.
    """

    path: Path
    to: TargetName
    facts: tuple[str, ...]
    code: tuple[str, ...]
    exact: bool = True


def export_steering(
    opened: Opened,
    out: str | os.PathLike[str],
    *,
    to: TargetName,
    model: str = DEFAULT_MODEL,
    device: str | None = None,
    dtype: str | None = None,
    every_vector: bool = False,
    every_position: bool = False,
    other_model: bool = False,
    custom_code: bool = False,
    rank: int | None = None,
) -> Exported:
    """Write a steering for ``model`` to ``out``, or raise an error that names the nearest target that can hold it.

    Parameters
    ----------
    opened : Opened
        See `open_steering`.
    out : path
        A new or empty folder, or for "gguf" a new file.
    to : {"folder", "lora", "gguf"}
        A model with the steering in its weights, a PEFT adapter, or a control vector of llama.cpp.
    model, device, dtype
        See `lm.load`; weights are written in this dtype.
    every_vector : bool
        Export the map of a gated steering without its gate, and of one for some positions for all of them. The map
        then acts on every vector.
    every_position : bool
        Give a warning, not an error, where the steering is for some positions only.
    other_model : bool
        Export for a model whose weights or configuration are not those that the steering was fitted on.
    custom_code : bool
        Allow a folder that needs its own code to load, where the architecture has no place for the constant part.
    rank : int or None
        For "lora": write the best approximation of this rank where the map has a higher one.

    Raises
    ------
    OutputError
        Before the model is loaded.
    FoldError
        Where the target cannot hold the steering exactly. Nothing is written.
    ParameterError
        For a steering of another model, unless ``other_model`` allows it. Nothing is written.

    Guarantees
    ----------
    Hooks, folder, adapter and merged adapter agree (test_every_export_says_what_the_hooks_say).
    """
    _check_options(to, custom_code=custom_code, rank=rank)
    opened.warn_about_strength()
    target = check_new_file(out) if to == "gguf" else check_new_folder(out)
    check_places(model, [(opened.site, opened.function.dim)])
    network, tokenizer = lm.load(model, device=device, dtype=dtype)
    known = opened if other_model else _of_this_model(opened, network)
    # other sites and models are warned of here, once: the map that is written has no origin
    (at,) = placements(network, {known.site: known.function}, strength=None, positions=None, caller="export")
    _check_positions(at.positions, allowed=every_vector or every_position)
    m = _one_map(_without_gate(at.steering) if every_vector else at.steering, at.strength)
    _require_held(network, m, at.site, to, custom_code=custom_code, rank=rank)
    match to:
        case "folder":
            folded = lm.fold(network, m, at.site)
            with added_files(target) as draft:
                lm.save_folded(folded, draft, custom_code=custom_code)
                tokenizer.save_pretrained(draft)
            code = folder_code(network, target, custom_code=portability(folded) is not None)
            return Exported(target, to, ("Exact: the steering is in the weights.",), code)
        case "lora":
            written = lm.to_lora(network, m, at.site, target, rank=rank, constant="merge")
            return Exported(target, to, adapter_facts(written), adapter_code(network, written), written.exact)
        case "gguf":
            lm.to_gguf(network, m, at.site, target)
            block = at.site.removeprefix("layers.")
            facts = (f"Exact: one float32 vector, which llama.cpp adds after block {block} at every position.",)
            return Exported(target, to, facts, control_vector_code(target))


def _check_options(to: TargetName, *, custom_code: bool, rank: int | None) -> None:
    """Raise before the model is loaded: options of other targets, and missing packages."""
    if check_rank(rank) is not None and to != "lora":
        raise OptionsError(f"rank is {rank}; only --to lora takes it, because other exports have no rank.")
    if custom_code and to != "folder":
        raise OptionsError("custom_code is set; only --to folder takes it, because other exports need no code.")
    if to == "lora":
        peft_package()
    if to == "gguf":
        gguf_package()


def _of_this_model(opened: Opened, network: nn.Module) -> Opened:
    """Return the steering as recognised; raise where it was fitted on other weights or another configuration."""
    advice = "Add --other-model to export it all the same."
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", OriginWarning)
            (known,) = recognised([opened], network)
    except OriginWarning as warning:
        raise ParameterError(f"{warning} {advice}") from warning
    configuration = known.function.origin.configuration
    if configuration is not None and architecture(network) not in (None, configuration):
        raise ParameterError(
            "This steering was fitted on a model of another configuration, so its maps may be meaningless in this one. "
            f"Load the model it was fitted on, or fit again. {advice}"
        )
    return known


def _check_positions(positions: Positions, *, allowed: bool) -> None:
    if positions == "all":
        return
    said = f"This steering is meant for positions={positions!r}; an export acts at every position."
    if not allowed:
        raise FoldError(f"{said} Add --every-vector to export it all the same, or {HOOKS}")
    warnings.warn(f"{said} To use these positions only, {HOOKS}", OriginWarning, stacklevel=3)


def _without_gate(function: rs.SteeringFunction) -> rs.SteeringFunction:
    maps = function.maps
    if len(maps) != 1:
        raise FoldError(
            f"The file holds {len(maps)} maps, one per class ({', '.join(map(str, maps))}). Fit one source."
        )
    return function.behind(AlwaysGate())


def _one_map(function: rs.SteeringFunction, strength: float) -> rs.AffineMap:
    try:
        return single_map(function, strength, caller="export")
    except FoldError as error:
        raise FoldError(
            f"This steering asks its {function.gate.kind} gate which vectors to steer, and no export holds a gate. Add "
            f"--every-vector to export its map without the gate, or {HOOKS}"
        ) from error


def _require_held(
    network: nn.Module, m: rs.AffineMap, site: str, to: TargetName, *, custom_code: bool, rank: int | None
) -> None:
    """Raise an error that names the nearest target, unless ``to`` holds the map, or may approximate it."""
    targets = export_targets(network, m, site)
    wanted = targets[to]
    approximable = to == "lora" and _has_approximations(network, m, site)
    if wanted.holds and (wanted.condition != "needs custom code" or custom_code):
        return
    if approximable and rank is not None:
        return
    others = [
        f"--to {other.name}{' --custom-code' * (other.condition == 'needs custom code')}"
        for other in nearest_targets(targets, to, m)
    ]
    sentences = [wanted.refusal or _without_bias(network, site)]
    if others:
        sentences.append(f"The nearest target that holds it exactly is {others[0]}.")
        sentences += [f"{other} holds it too." for other in others[1:]]
    if approximable:
        sentences.append("--rank N writes its best approximation of rank N, and states the error.")
    if not others and not wanted.holds:
        quantised = any(is_quantised(module) for module in network.modules())
        remedy = UNQUANTISED if quantised else f"{nearest_foldable(network, site)} Or {HOOKS}"
        sentences.append(f"No other target holds it. {remedy}")
    raise FoldError(" ".join(sentences))


def _has_approximations(network: nn.Module, m: rs.AffineMap, site: str) -> bool:
    """Return whether the rank is all that stands between the map and an adapter."""
    try:
        lora_point(network, m, site)
    except FoldError:
        return False
    return low_rank(m) is None


def _without_bias(network: nn.Module, site: str) -> str:
    portable = nearest_foldable(network, site, portable_sites(network), where=" without such code")
    return (
        f"{type(network).__name__} has no bias for the map's constant at {site!r}, so that the folder needs its own "
        f"code to load. Add --custom-code to allow it. {portable}"
    )
