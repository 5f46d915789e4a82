"""The model that a steering belongs to: its name, its architecture and its weights, without any local path."""

import json
import os
from pathlib import Path
from typing import Any

from torch import nn

from repsurgery.checkpoint import digest
from repsurgery.lm.load.fingerprint import fingerprint
from repsurgery.lm.load.wheel import EMBEDDED
from repsurgery.lm.sites.families import text_config
from repsurgery.lm.sites.names import resolve_site
from repsurgery.lm.sites.wrappers import unwrapped
from repsurgery.origin import Origin

__all__ = ["architecture", "model_name", "origin_of", "plain_model_name"]

_DECISIVE = (
    "model_type",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
    "hidden_act",
    "rms_norm_eps",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "sliding_window",
)
"""Options of a configuration that affect states and have the same meaning in every version of transformers."""


def origin_of(model: nn.Module, *, site: str | None = None, **facts: Any) -> Origin:
    """Return the origin of a steering fitted on states of ``model``, which includes a hash of all weights.

    Parameters
    ----------
    model : nn.Module
    site : str or None
        The site at which the states were read.
    **facts
        Further fields of `repsurgery.Origin`: pooling, positions, strength, data, licence.

    Examples
    --------
    ``est.with_origin(lm.origin_of(model, site="layers.12"))`` before ``rs.save(est, path)``.
    """
    if site is not None:
        resolve_site(model, site)
    dtype = getattr(model, "dtype", None)
    return Origin(
        model=model_name(model),
        configuration=architecture(model),
        fingerprint=fingerprint(model, ignore_dtype=True),
        dtype=None if dtype is None else str(dtype).removeprefix("torch."),
        site=site,
    ).revised(**facts)


def model_name(model: nn.Module) -> str | None:
    """Return the embedded name, hub id or folder name from which ``model`` was loaded; None if it has none."""
    named = getattr(getattr(unwrapped(model), "config", None), "name_or_path", None)
    return plain_model_name(named) if named else None


def plain_model_name(named: str | os.PathLike[str]) -> str:
    """Return ``named``, or its last part where it is a path, or the name of the embedded model in that folder."""
    text = os.fspath(named)
    path = Path(text).expanduser()
    for embedded in EMBEDDED.values():
        inside = Path(embedded.file).parent.parts
        if path.name == embedded.folder_name or (embedded.is_folder and path.parts[-len(inside) :] == inside):
            return embedded.name
    return Path(os.path.abspath(path)).name or text if path.is_absolute() or path.is_dir() else text  # noqa: PTH100 - links stay


def architecture(model: nn.Module) -> str | None:
    """Return a digest of the settings that affect states, without the dtype; None for a model without configuration."""
    inner = unwrapped(model)
    text = text_config(inner)
    if text is None:
        return None
    settings = {name: getattr(text, name, None) for name in _DECISIVE}
    # older versions of transformers store the base of the rotary angles as a separate option
    rope = getattr(text, "rope_parameters", None) or {}
    settings["rope_theta"] = getattr(text, "rope_theta", None) or (
        rope.get("rope_theta") if isinstance(rope, dict) else None
    )
    # the scaling of the angles; the default is left out, because older versions do not store it
    scaling = rope if isinstance(rope, dict) else {}
    settings["rope_scaling"] = {
        name: value for name, value in scaling.items() if name != "rope_theta" and value != "default"
    }
    settings["folded"] = getattr(inner.config, "repsurgery_folded", None)
    return digest(json.loads(json.dumps(settings, default=str)))
