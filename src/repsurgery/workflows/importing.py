"""Import a steering of another program: see `repsurgery.importers`."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import repsurgery as rs
from repsurgery.checkpoint import file_digest
from repsurgery.errors import ParameterError, SurgeryError
from repsurgery.importers import IMPORTERS, Importer
from repsurgery.origin import FOREIGN
from repsurgery.outputs import check_new_folder, check_output
from repsurgery.registry import reads

__all__ = ["Imported", "import_steering"]


@dataclass(frozen=True, slots=True)
class Imported:
    """A steering file made from a foreign vector.

    Attributes
    ----------
    file : Path
    steering : SteeringFunction
    """

    file: Path
    steering: rs.SteeringFunction


def import_steering(
    file: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    from_: str,
    sites: Sequence[str] = (),
    model: str | None = None,
    other_model: bool = False,
) -> list[Imported]:
    """Write a steering file for the vector at each site; the steerings are marked as foreign.

    Parameters
    ----------
    file : path
    out : path
        A file; with several sites a new or empty folder, in which each file is called after its site.
    from_ : str
        A name in `IMPORTERS`.
    sites : sequence of str
        None is needed where the file holds one vector and names its site.
    model : str or None
        A model in which each site must have the width of its vector; it becomes part of the origin.
    other_model : bool
        Accept a file that names another type of model.

    Raises
    ------
    ParameterError, SiteError, ShapeError, DataError, FileFormatError
        The file names no site or several of them, is of another model, holds vectors of another width, or cannot be
        read. Nothing is written then.

    Guarantees
    ----------
    Whatever a file claims, the steering has no certificate, no price and no outcome
    (test_an_imported_steering_is_marked_until_it_is_priced_and_certified).
    """
    importer, source = IMPORTERS[from_], Path(file)
    target = check_new_folder(out) if len(sites) > 1 else check_output(out, inputs=[source])
    places: Sequence[str | None] = list(dict.fromkeys(sites)) or [None]
    steerings = [_read(importer, from_, source, site) for site in places]
    if model is not None:
        _check_model(importer, source, steerings, model, other_model=other_model)
        steerings = [one.with_origin(model=_plain_name(model)) for one in steerings]
    if len(steerings) == 1:
        files = [target]
    else:
        target.mkdir(parents=True, exist_ok=True)
        files = [target / f"{one.origin.site}.safetensors" for one in steerings]
    for steering, place in zip(steerings, files, strict=True):
        rs.save(steering, place)
    return [Imported(*pair) for pair in zip(files, steerings, strict=True)]


def _read(importer: Importer, from_: str, source: Path, site: str | None) -> rs.SteeringFunction:
    choice = {"site": site} if "site" in reads(importer.read) else {}
    try:
        function, origin = importer.read(source, **choice)
        if not (isinstance(function, rs.SteeringFunction) and isinstance(origin, rs.Origin)):
            raise TypeError("read did not return a SteeringFunction and an Origin")
    except (SurgeryError, OSError):
        raise
    except Exception as error:  # of a plugin
        problem = f"read raised {type(error).__name__}: {error}"
        if from_ not in IMPORTERS.own():
            IMPORTERS.warn_of(from_, problem)
        raise ParameterError(f"The import {from_!r} cannot read {source}: {problem}. Choose another one.") from error
    origin = origin.revised(site=site or origin.site, data=f"{FOREIGN}{from_}, sha256 {file_digest(source)}")
    if origin.site is None:
        raise ParameterError(f"site is missing: {source} does not say where it belongs. Name the site.")
    return replace(function, certificate=None, price=None, outcome=None).with_origin(origin)


def _check_model(
    importer: Importer, source: Path, steerings: Sequence[rs.SteeringFunction], model: str, *, other_model: bool
) -> None:
    """Raise where the file names another type of model, or ``model`` has another width at a site."""
    from repsurgery.lm.load.models import read_config
    from repsurgery.lm.steer.early import check_places

    stated = importer.model_type(source) if hasattr(importer, "model_type") else None
    if stated is not None and not other_model:
        config: Any = read_config(model)[0]
        types = {config.model_type, config.get_text_config().model_type}
        if _alike(stated) not in map(_alike, types):
            raise ParameterError(
                f"{source} was made for a model of the type {stated!r:.60}, and {model} is of the type "
                f"{config.model_type!r}. Name the model it was made for, or add --other-model."
            )
    check_places(model, [(str(one.origin.site), one.dim) for one in steerings])


def _alike(model_type: str) -> str:
    """Return a model type as it is compared: llama.cpp writes "gptneox" and "gemma3", and calls Mistral a Llama."""
    plain = model_type.lower().removesuffix("_text").replace("_", "").replace("-", "")
    return "llama" if plain == "mistral" else plain


def _plain_name(model: str) -> str:
    from repsurgery.lm.load.origin import plain_model_name

    return plain_model_name(model)
