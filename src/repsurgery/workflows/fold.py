"""Fold a saved steering into a model's weights and write the resulting model."""

import os
from pathlib import Path

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import FoldError
from repsurgery.lm.load.models import DEFAULT_MODEL
from repsurgery.steering.function import EVERYBODY
from repsurgery.workflows.steerings import Opened, recognised

__all__ = ["fold_into"]


def fold_into(
    opened: Opened,
    folder: str | os.PathLike[str],
    *,
    model: str = DEFAULT_MODEL,
    every_vector: bool = False,
    custom_code: bool = False,
) -> Path:
    """Write ``model`` with a steering in its weights to ``folder``, and return the folder.

    Parameters
    ----------
    opened : Opened
        See `open_steering`.
    folder : path
        A new or empty folder.
    every_vector : bool
        Fold the map of a gated steering without its gate, because weights cannot hold a gate. The map then acts on
        every vector.
    custom_code : bool
        Allow a folder that needs its own code to load, where the architecture has no place for the constant part.
    """
    target = Path(folder)
    if target.exists() and any(target.iterdir()):
        raise FoldError(f"{target} is not empty. Name a new folder, so that no file of another model stays in it.")
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
