"""Fold a saved steering into a model's weights and write the model that results."""

import os
from pathlib import Path

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import FoldError
from repsurgery.lm.load.models import DEFAULT_MODEL
from repsurgery.outputs import check_output_folder
from repsurgery.steering.function import EVERYBODY
from repsurgery.workflows.steerings import open_steering, recognised

__all__ = ["fold_into"]


def fold_into(
    file: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    model: str = DEFAULT_MODEL,
    site: str | None = None,
    strength: float | None = None,
    every_vector: bool = False,
    custom_code: bool = False,
) -> Path:
    """Write ``model`` with the steering of ``file`` in its weights to ``folder``, and return the folder.

    Parameters
    ----------
    file : path
        A map, a steering function or an estimator.
    site, strength
        None: those of the file, else "final" and 1.
    every_vector : bool
        Fold the map of a gated steering, which then acts on every vector; weights cannot hold a gate.
    custom_code : bool
        Allow a folder that needs code of its own to load, where the architecture cannot hold the constant part.
    """
    target = Path(folder)
    check_output_folder(target)
    if target.exists() and any(target.iterdir()):
        raise FoldError(f"{target} is not empty. Name a new folder, so that no file of another model stays in it.")
    opened = open_steering(file, site, strength)
    network, tokenizer = lm.load(model)
    (known,) = recognised([opened], network)
    folded = lm.fold(network, _ungated(known.function) if every_vector else known.function, known.site)
    lm.save_folded(folded, target, custom_code=custom_code)
    tokenizer.save_pretrained(target)
    return target


def _ungated(function: rs.SteeringFunction) -> rs.SteeringFunction:
    maps = function.maps
    if len(maps) != 1:
        raise FoldError(
            f"The file holds {len(maps)} maps, one per class ({', '.join(map(str, maps))}). Fit one source."
        )
    return rs.SteeringFunction({EVERYBODY: next(iter(maps.values()))}, origin=function.origin)
