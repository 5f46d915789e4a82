"""Models inside other modules: what wraps a model, and where the model is."""

from typing import Any

from torch import nn
from transformers import PreTrainedModel

from repsurgery.lm.steer.standin import behind

__all__ = ["is_peft", "outermost_models", "unwrapped", "virtual_tokens"]

_WITH_MODULE = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "DeepSpeedEngine")


def unwrapped(model: Any) -> nn.Module:
    """Return the model inside wrappers that compute what it computes, or ``model`` itself.

    Those are PEFT's, `torch.compile`'s, data parallelism's and what `steer` yields.
    """
    outer: nn.Module | None = None
    inner: nn.Module = behind(model)
    while inner is not outer:
        outer, inner = inner, _inside(inner)
    return inner


def _inside(model: nn.Module) -> nn.Module:
    if isinstance(compiled := getattr(model, "_orig_mod", None), nn.Module):
        return compiled
    if is_peft(model):
        found: nn.Module = model.get_base_model()  # type: ignore[operator]
        return found
    if any(base.__name__ in _WITH_MODULE for base in type(model).__mro__) and isinstance(model.module, nn.Module):
        return model.module
    return model


def is_peft(model: nn.Module) -> bool:
    """Return whether ``model`` is a PEFT wrapper."""
    return callable(getattr(model, "get_base_model", None))


def virtual_tokens(model: Any) -> int:
    """Return how many virtual tokens ``model`` puts before every text: 0 but for PEFT's prompt and prefix tuning."""
    wrapper = behind(model)
    config: Any = wrapper.active_peft_config if is_peft(wrapper) else None
    return int(config.num_virtual_tokens) if getattr(config, "is_prompt_learning", False) else 0


def outermost_models(model: nn.Module) -> list[nn.Module]:
    """Return the transformers models in ``model`` that lie in no other one; ``model`` itself where there is none."""
    found: list[nn.Module] = []
    inside: set[int] = set()
    for module in model.modules():
        if isinstance(module, PreTrainedModel) and id(module) not in inside:
            found.append(module)
            inside.update(map(id, module.modules()))
    return found or [model]
