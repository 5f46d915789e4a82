"""Write a folded model to a folder: as a plain model where its architecture permits, with custom code on request."""

import json
import os
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from repsurgery.checkpoint import added_files
from repsurgery.errors import FoldError
from repsurgery.lm.fold.fold import NotPortable, portability
from repsurgery.lm.fold.fold_points import require_unquantised
from repsurgery.lm.fold.weights import bias_of, matrix_of
from repsurgery.lm.load.folder import make_ordinary
from repsurgery.lm.sites.wrappers import unwrapped

__all__ = ["save_folded"]

MODULE = "modeling_folded"
AUTO_CLASSES = (
    "AutoModelForCausalLM",
    "AutoModelForImageTextToText",
    "AutoModelForMaskedLM",
    "AutoModelForSequenceClassification",
    "AutoModelForTokenClassification",
    "AutoModelForQuestionAnswering",
    "AutoModel",
)
CODE = '''"""A {model} with biases its architecture does not have; written by repsurgery.

The layers named in ``config.folded_layers`` store their bias as one more column of the weight, so that a class without
this code raises a shape error instead of dropping the bias.
"""

import torch
from transformers import {config}, {model}


class Folded{config}({config}):
    model_type = "{kind}"


class FoldedLinear(torch.nn.Linear):
    def __init__(self, in_features, out_features):
        super().__init__(in_features + 1, out_features, bias=False)

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight[:, :-1], self.weight[:, -1])


class Folded{model}({model}):
    config_class = Folded{config}

    def __init__(self, config):
        super().__init__(config)
        for path in config.folded_layers:
            old = self.get_submodule(path)
            self.set_submodule(path, FoldedLinear(old.in_features, old.out_features))
'''


def save_folded(model: nn.Module, folder: str | os.PathLike[str], *, custom_code: bool = False) -> Path:
    """Write a model returned by `fold` so that it reloads with the same logits, or raise an error.

    Parameters
    ----------
    model : nn.Module
    folder : path
    custom_code : bool
        Allow a Python file beside the weights where the architecture has no bias for the map's constant. Such a folder
        loads only with ``AutoModelFor...from_pretrained(folder, trust_remote_code=True)``: without that option, or
        with the plain class, transformers raises an error. A model that needs no code is written without it.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    FoldError
        Where the model needs custom code and ``custom_code`` is False (the message names portable sites), and where it
        has quantised layers. Nothing is written then, and nothing is left after any other failure.

    Guarantees
    ----------
    Custom code reloads the same (test_custom_code_reloads_the_same_and_never_silently_otherwise).
    """
    inner: Any = unwrapped(model)
    require_unquantised(inner)
    target = Path(folder)
    guard = portability(inner)
    if guard is not None and not custom_code:
        guard()
    if guard is not None:
        _require_known_classes(inner)
    # a half-written folder must not be mistaken for a model
    with added_files(target) as draft:
        if guard is None:
            inner.save_pretrained(draft)
        else:
            _write(inner, guard, draft)
        make_ordinary(draft)
    return target


def _write(model: Any, guard: NotPortable, folder: Path) -> None:
    # transformers renames the weights of some families on disk, and undoes that only for model types it knows
    state = _with_bias_columns(model, guard)
    type(model).save_pretrained(model, folder, state_dict=state, save_original_format=False)
    file = folder / "config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    names = {"model": type(model).__name__, "config": type(model.config).__name__}
    config["folded_layers"] = list(guard.biases)
    config["model_type"] = f"repsurgery_{config['model_type']}"
    config["architectures"] = [f"Folded{names['model']}"]
    config["auto_map"] = {
        "AutoConfig": f"{MODULE}.Folded{names['config']}",
        **dict.fromkeys(_auto_classes(model), f"{MODULE}.Folded{names['model']}"),
    }
    file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    code = CODE.format(**names, kind=config["model_type"])
    (folder / f"{MODULE}.py").write_text(code, encoding="utf-8")


def _with_bias_columns(model: nn.Module, guard: NotPortable) -> dict[str, torch.Tensor]:
    state = dict(model.state_dict())
    for path in guard.biases:
        layer = model.get_submodule(path)
        bias = bias_of(layer)
        assert bias is not None
        whole = torch.cat([matrix_of(layer), bias[:, None]], dim=1)
        state[f"{path}.weight"] = whole.to(state.pop(f"{path}.bias").dtype)
    return state


def _require_known_classes(model: Any) -> None:
    for kind in (type(model), type(model.config)):
        if getattr(transformers, kind.__name__, None) is not kind:
            raise FoldError(
                f"Custom code can only extend classes of transformers, and {kind.__name__} is not one of them. "
                "Fold at a portable site, or keep the model in memory."
            )


def _auto_classes(model: Any) -> list[str]:
    names = []
    for name in AUTO_CLASSES:
        classes = getattr(transformers, name)._model_mapping.get(type(model.config), ())
        if type(model) in (classes if isinstance(classes, (tuple, list)) else (classes,)):
            names.append(name)
    return names or ["AutoModel"]
