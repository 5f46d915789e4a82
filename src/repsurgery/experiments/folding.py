"""Fold a saved steering into a model's weights and write the model that results."""

import os
from pathlib import Path
from typing import Any

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import FoldError
from repsurgery.outputs import check_output_folder

__all__ = ["fold_into"]


def fold_into(
    file: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    model: str = lm.models.DEFAULT_MODEL,
    site: str = "final",
    every_vector: bool = False,
    custom_code: bool = False,
) -> Path:
    """Write ``model`` with the steering of ``file`` in its weights to ``folder``, and return the folder.

    Parameters
    ----------
    file : path
        A map, a steering function or an estimator.
    every_vector : bool
        Fold the map of a gated steering, which then acts on every vector; weights cannot hold a gate.
    custom_code : bool
        Allow a folder that needs code of its own to load, where the architecture cannot hold the constant part.
    """
    target = Path(folder)
    check_output_folder(target)
    if target.exists() and any(target.iterdir()):
        raise FoldError(f"{target} is not empty. Name a new folder, so that no file of another model stays in it.")
    value = rs.load(file)
    network, tokenizer = lm.load(model)
    folded = lm.fold(network, _only_map(value) if every_vector else value, site)
    lm.save_folded(folded, target, custom_code=custom_code)
    tokenizer.save_pretrained(target)
    return target


def _only_map(value: Any) -> Any:
    steering = getattr(value, "steering_", value)
    maps = getattr(steering, "maps", None)
    if maps is None:
        return steering
    if len(maps) != 1:
        raise FoldError(
            f"The file holds {len(maps)} maps, one per class ({', '.join(map(str, maps))}). Fit one source."
        )
    return next(iter(maps.values()))
