"""Export a saved steering in the form of another program: see `repsurgery.exporters`."""

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import FoldError, MissingExtraError, OptionsError, OriginWarning, ParameterError, SurgeryError
from repsurgery.exporters import EXPORTERS, Exporter, Written
from repsurgery.gates import AlwaysGate
from repsurgery.lm.fold.bias_placement import portable_sites
from repsurgery.lm.fold.exporters import whole_map
from repsurgery.lm.fold.fold_points import UNQUANTISED, nearest_foldable
from repsurgery.lm.fold.lora_factors import check_rank, lora_point, low_rank
from repsurgery.lm.fold.targets import TargetName, checked_target, nearest_targets
from repsurgery.lm.fold.weights import is_quantised
from repsurgery.lm.load.models import DEFAULT_MODEL
from repsurgery.lm.load.origin import architecture
from repsurgery.lm.steer.early import check_places
from repsurgery.lm.steer.placement import Placement
from repsurgery.lm.steer.placing import only_placement
from repsurgery.outputs import check_new_file, check_new_folder
from repsurgery.registry import reads
from repsurgery.workflows.steerings import SteeringFile, recognised

__all__ = ["Exported", "check_out", "export_steering"]

HOOKS = "steer with hooks: repsurgery generate or repsurgery serve."


@dataclass(frozen=True, slots=True)
class Exported:
    """A steering on disk, in a form that other programs load.

    Attributes
    ----------
    path : Path
        The folder or file.
    to : str
        The name of the export.
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
    opened: SteeringFile,
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
    options: Mapping[str, Any] | None = None,
) -> Exported:
    """Write a steering for ``model`` to ``out``, or raise an error that names the nearest target that can hold it.

    Parameters
    ----------
    opened : SteeringFile
        See `open_steering`.
    out : path
        A new or empty folder, or for "gguf" a new file.
    to : str
        A name in `EXPORTERS`: "folder" is a model with the steering in its weights, "lora" a PEFT adapter, "gguf" a
        control vector of llama.cpp.
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
    options : mapping or None
        Further options of the export, as values or as text; see `Exporter.options`.

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
    exporter = EXPORTERS[to]
    given = {"custom_code": custom_code or None, "rank": check_rank(rank), **(options or {})}
    chosen = _typed(exporter, to, {name: value for name, value in given.items() if value is not None})
    getattr(exporter, "require", lambda: None)()
    opened.warn_about_strength()
    target = check_out(exporter, out)
    check_places(model, [(opened.placement.site, opened.placement.function.dim)])
    network, tokenizer = lm.load(model, device=device, dtype=dtype)
    known = opened if other_model else _of_this_model(opened, network)
    # other sites and models are warned of here, once
    at: Placement = only_placement(network, known.placement, None, None, 1.0, caller="export")
    if at.positions != "all" and (every_vector or every_position or not _holds(to, at, network)):
        at = _at_every_position(at, allowed=every_vector or every_position)
    if every_vector:
        at = replace(at, function=_without_gate(at.function))
    _require_held(network, at, to, custom_code=custom_code, rank=rank)
    written = _write(exporter, to, at, network, tokenizer, target, chosen)
    return Exported(target, to, written.facts, written.code, written.exact)


def check_out(exporter: Exporter, out: str | os.PathLike[str]) -> Path:
    """Return ``out`` as a path if the export may be written there: a new file, or a new or empty folder."""
    writes = getattr(exporter, "writes", "folder" if Path(out).is_dir() else "file")
    return check_new_folder(out) if writes == "folder" else check_new_file(out)


def _typed(exporter: Exporter, to: TargetName, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an export with the types that it states, or raise an `OptionsError`."""
    typed = {}
    kinds = {name: kind if isinstance(kind, type) else type(kind) for name, kind in exporter.options.items()}
    for name, value in given.items():
        kind = kinds.get(name)
        if kind is None:
            takers = " or ".join(f"--to {key}" for key, other in EXPORTERS.own().items() if name in other.options)
            known = ", ".join(kinds) or "no options"
            raise OptionsError(
                f"{name} is {value}; " + (f"only {takers} takes it." if takers else f"{to} has {known}.")
            )
        try:
            typed[name] = _as_bool(value) if kind is bool else kind(value)
        except ValueError as error:
            raise OptionsError(f"{name} is {value!r}; {to} needs a value of the type {kind.__name__}.") from error
    return typed


def _as_bool(value: Any) -> bool:
    return ("false", "true").index(str(value).lower()) == 1


def _holds(to: TargetName, at: Placement, network: nn.Module) -> bool:
    target = checked_target(to, at, network)
    return target is not None and target.holds


def _write(
    exporter: Exporter,
    to: TargetName,
    at: Placement,
    network: nn.Module,
    tokenizer: Any,
    path: Path,
    options: Mapping[str, Any],
) -> Written:
    """Let the exporter write, and return what it says; a package that it lacks is an error that names its extra."""
    extra = {"tokenizer": tokenizer} if "tokenizer" in reads(exporter.write) else {}
    try:
        result = exporter.write(at, network, path, **extra, **options)
        written = result if isinstance(result, Written) else Written()
        code = written.code or exporter.how_to_load(path)
        return replace(written, code=tuple(code.splitlines() if isinstance(code, str) else code))
    except (SurgeryError, OSError):
        raise
    except ModuleNotFoundError as error:
        if not exporter.extra:
            raise
        install = f"pip install '{EXPORTERS.package(to)}[{exporter.extra}]'"
        raise MissingExtraError(f"The export {to} needs {error.name}: {install}") from error
    except Exception as error:
        if to in EXPORTERS.own():
            raise
        problem = f"writing raised {type(error).__name__}: {error}"
        EXPORTERS.warn_of(to, problem)
        raise ParameterError(f"The export {to!r} cannot be used: {problem}. Choose another one.") from error


def _of_this_model(opened: SteeringFile, network: nn.Module) -> SteeringFile:
    """Return the steering as recognised; raise where it was fitted on other weights or another configuration."""
    advice = "Add --other-model to export it all the same."
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", OriginWarning)
            (known,) = recognised([opened], network)
    except OriginWarning as warning:
        raise ParameterError(f"{warning} {advice}") from warning
    configuration = known.placement.function.origin.configuration
    if configuration is not None and architecture(network) not in (None, configuration):
        raise ParameterError(
            "This steering was fitted on a model of another configuration, so its maps may be meaningless in this one. "
            f"Load the model it was fitted on, or fit again. {advice}"
        )
    return known


def _at_every_position(at: Placement, *, allowed: bool) -> Placement:
    words = f"This steering is meant for positions={at.positions!r}; an export acts at every position."
    if not allowed:
        raise FoldError(f"{words} Add --every-vector to export it all the same, or {HOOKS}")
    warnings.warn(f"{words} To use these positions only, {HOOKS}", OriginWarning, stacklevel=3)
    return replace(at, positions="all")


def _without_gate(function: rs.SteeringFunction) -> rs.SteeringFunction:
    maps = function.maps
    if len(maps) != 1:
        raise FoldError(
            f"The file holds {len(maps)} maps, one per class ({', '.join(map(str, maps))}). Fit one source."
        )
    return function.behind(AlwaysGate())


def _one_map(at: Placement, to: TargetName) -> rs.AffineMap:
    try:
        return whole_map(at)
    except FoldError as error:
        raise FoldError(
            f"This steering asks its {at.function.gate.kind} gate which vectors to steer, and {to} holds no gate. Add "
            f"--every-vector to export its map without the gate, or {HOOKS}"
        ) from error


def _require_held(network: nn.Module, at: Placement, to: TargetName, *, custom_code: bool, rank: int | None) -> None:
    """Raise an error that names the nearest target, unless ``to`` holds the placement, or may approximate its map."""
    wanted = checked_target(to, at, network)
    if wanted is None:
        raise ParameterError(f"The export {to!r} cannot be used; the warning above says why. Choose another one.")
    if wanted.holds and (wanted.condition != "needs custom code" or custom_code):
        return
    m = _one_map(at, to)
    approximable = to == "lora" and _has_approximations(network, m, at.site)
    if approximable and rank is not None:
        return
    checked = {name: target for name in EXPORTERS if (target := checked_target(name, at, network)) is not None}
    others = [
        f"--to {other.name}{' --custom-code' * (other.condition == 'needs custom code')}"
        for other in nearest_targets(checked, to, m)
    ]
    sentences = [wanted.refusal or _without_bias(network, at.site)]
    if others:
        sentences.append(f"The nearest target that holds it exactly is {others[0]}.")
        sentences += [f"{other} holds it too." for other in others[1:]]
    if approximable:
        sentences.append("--rank N writes its best approximation of rank N, and states the error.")
    if not others and not wanted.holds:
        quantised = any(is_quantised(module) for module in network.modules())
        remedy = UNQUANTISED if quantised else f"{nearest_foldable(network, at.site)} Or {HOOKS}"
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
