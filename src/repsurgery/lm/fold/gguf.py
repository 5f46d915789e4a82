"""Write a translation as a llama.cpp control vector."""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from repsurgery.affine import AffineMap, Diagonal, LowRank, Translation
from repsurgery.arrays import Vector
from repsurgery.checkpoint import atomic_file
from repsurgery.errors import FoldError, MissingExtraError, ShapeError
from repsurgery.lm.fold.fold_points import single_map
from repsurgery.lm.sites.names import resolve_site, site_names
from repsurgery.lm.sites.wrappers import unwrapped
from repsurgery.lm.steer.placement import placements_in
from repsurgery.lm.steer.placing import weight_placement
from repsurgery.lm.steer.row_steering import as_steering

__all__ = ["control_vector", "gguf_package", "is_translation", "to_gguf"]


def to_gguf(
    model: nn.Module,
    steering: Any,
    site: str | None,
    path: str | os.PathLike[str],
    *,
    strength: float | None = None,
    scale: float = 1.0,
) -> Path:
    """Write a control vector that llama.cpp adds to the output of one block.

    Parameters
    ----------
    model : nn.Module
        A decoder, of which only the family and the sizes are read.
    steering : Translation, or a SteeringFunction or fitted estimator that steers every vector by the same translation
        x ↦ x + shift, with ``shift`` (d,). Or placements, as for `fold`.
    site : str or None
        ``"layers.N"`` with N from 1 to the last block; None uses the site that the steering's origin names.
    path : path
        The file to write; an existing file is replaced.
    strength : float or None
        None uses the strength of the steering's origin, else 1.
    scale : float
        Multiplies that strength; see `steer`. The vector is written at the product, and
        ``--control-vector-scaled FILE:SCALE`` multiplies it further.

    Returns
    -------
    Path
        The file, for ``llama-cli --control-vector FILE`` or ``llama-server --control-vector FILE``.

    Raises
    ------
    FoldError
        For a map that is not a translation, and for a site where llama.cpp applies no control vector.

    Notes
    -----
    llama.cpp numbers blocks from 0 as this package does and adds tensor ``direction.N`` to the residual stream after
    block N, where ``"layers.N"`` is; it has no control vector for block 0. The file holds ``general.architecture`` =
    ``"controlvector"``, ``controlvector.model_hint`` = the model type, ``controlvector.layer_count`` = 1 and one
    float32 tensor. llama.cpp steers every position and has no gates.

    Guarantees
    ----------
    The file holds the shift in float32 (test_the_control_vector_reads_back).
    A failure leaves no file behind (test_a_failed_export_leaves_nothing_behind).
    """
    inner: Any = unwrapped(model)
    # checked first: this error also explains a block that the model lacks
    for named in _named_sites(steering, site):
        _block(inner, named)
    at = weight_placement(inner, steering, site, strength, scale, caller="to_gguf")
    m, site = single_map(at.function, at.strength, caller="to_gguf"), at.site
    number, shift = control_vector(inner, m, site)
    direction = _rounded(shift)
    gguf = gguf_package()
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, atomic_file(target) as stream:
        draft = Path(scratch) / "vector.gguf"
        writer = gguf.GGUFWriter(str(draft), "controlvector")
        try:
            writer.add_string("controlvector.model_hint", inner.config.get_text_config().model_type)
            writer.add_uint32("controlvector.layer_count", 1)
            writer.add_tensor(f"direction.{number}", direction)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
        finally:
            writer.close()
        stream.write(draft.read_bytes())
    return target


def _named_sites(steering: Any, site: str | None) -> list[str]:
    if site is not None:
        return [site]
    if placed := placements_in(steering):
        return [one.site for one in placed]
    named = as_steering(steering, caller="to_gguf").origin.site
    return [] if named is None else [named]


def control_vector(model: nn.Module, m: AffineMap, site: str) -> tuple[int, Vector]:
    """Return the number of the block after ``site`` and the vector (d,) to add there, or raise an error."""
    shift, number = _shift_of(m), _block(model, site)
    width = resolve_site(model, site).width
    if m.dim != width:
        raise ShapeError(
            f"The translation for site {site!r} has {m.dim} features; {type(model).__name__} has {width} there. "
            "Fit it on vectors extracted at this site of this model."
        )
    return number, shift


def _rounded(shift: Vector) -> Any:
    with np.errstate(over="ignore"):
        rounded = shift.astype(np.float32)
    if not np.isfinite(rounded).all():
        raise FoldError(
            f"The vector reaches {np.abs(shift).max():.3g}, beyond float32, in which control vectors are stored. "
            "Export at a lower strength."
        )
    return rounded


def is_translation(m: AffineMap) -> bool:
    """Return whether ``m`` does nothing but add a vector."""
    adds = isinstance(m, Translation)
    adds |= isinstance(m, Diagonal) and bool((m.scale == 1).all())
    return adds or (isinstance(m, LowRank) and m.rank == 0 and float(m.scale) == 1)


def _shift_of(m: AffineMap) -> Vector:
    if not is_translation(m):
        raise FoldError(
            f"A control vector can only add a vector, and this {m.kind} map is not a translation. Fit MeanMatching, "
            "whose map is one, or export another way: lm.fold, lm.to_lora."
        )
    return m.bias


def _block(model: Any, site: str) -> int:
    match = re.fullmatch(r"layers\.(\d+)", site)
    blocks = sum(1 for name in site_names(model) if re.fullmatch(r"layers\.\d+", name))
    if not model.can_generate():
        raise FoldError(
            f"llama.cpp applies no control vector to encoders such as {type(model).__name__}. Use lm.steer."
        )
    if match is None or not 1 <= int(match[1]) < blocks:
        raise FoldError(
            "A control vector acts on the residual stream after a block, and llama.cpp has none for block 0, so "
            f"{site!r} cannot be exported. Choose one of 'layers.1' to 'layers.{blocks - 1}'."
        )
    return int(match[1])


def gguf_package() -> Any:
    """Return the package gguf, or raise an error that names its extra."""
    try:
        import gguf
    except ImportError as error:
        raise MissingExtraError(
            f"to_gguf needs the gguf package ({error}): pip install 'repsurgery[export]'"
        ) from error
    return gguf
