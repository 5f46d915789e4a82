"""The steering peers on one model: add a vector after one block while generating, each as its documentation does.

They live in an environment of their own (``benchmarks/peers.txt``, without their dependencies); one that is absent is
left out with a note. All of them leave the model as they found it.
"""

import contextlib
import importlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

__all__ = ["installed"]

Peer = Callable[[Any, dict[str, torch.Tensor], int, torch.Tensor, dict[str, Any]], torch.Tensor]
"""Takes model, inputs, layer, vector and generation settings; returns tokens."""


def installed() -> dict[str, Peer]:
    """Return the peers that are here, and print which are not."""
    if not hasattr(np, "float_"):
        vars(np)["float_"] = np.float64  # repeng 0.4.0 was written for numpy 1
    found = {}
    for name, peer in {"repeng": _repeng, "steering_vectors": _steering_vectors, "pyvene": _pyvene}.items():
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                importlib.import_module(name)
        except ImportError as error:
            print(f"{name} is left out: {error}. See benchmarks/peers.txt.")
        else:
            found[name] = peer
    return found


def _repeng(
    model: Any, inputs: dict[str, torch.Tensor], layer: int, vector: torch.Tensor, settings: dict[str, Any]
) -> torch.Tensor:
    from repeng import ControlModel, ControlVector

    controlled = ControlModel(model, [layer])
    try:
        controlled.set_control(ControlVector(model.config.model_type, {layer: vector.numpy()}))
        return controlled.generate(**inputs, **settings)
    finally:
        controlled.unwrap()


def _steering_vectors(
    model: Any, inputs: dict[str, torch.Tensor], layer: int, vector: torch.Tensor, settings: dict[str, Any]
) -> torch.Tensor:
    from steering_vectors import SteeringVector

    with SteeringVector({layer: vector}).apply(model):
        return model.generate(**inputs, **settings)


def _pyvene(
    model: Any, inputs: dict[str, torch.Tensor], layer: int, vector: torch.Tensor, settings: dict[str, Any]
) -> torch.Tensor:
    import pyvene

    site = {"layer": layer, "component": "block_output", "intervention_type": pyvene.AdditionIntervention}
    intervenable = pyvene.IntervenableModel({**site, "source_representation": vector}, model=model)
    # without locations and "on the prompt", it adds at every position of every pass
    _, tokens = intervenable.generate(inputs, unit_locations=None, intervene_on_prompt=True, **settings)
    return tokens
