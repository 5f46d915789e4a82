"""Objects around a model: PEFT, compilation, data parallelism, and what a steering block yields."""

from collections.abc import Mapping
from typing import Any

from torch import nn

__all__ = ["SteeredModel", "behind", "is_peft", "outermost_models", "unwrapped", "virtual_tokens"]

_WITH_MODULE = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "DeepSpeedEngine")


class SteeredModel:
    """Behave as ``model`` in every respect, and add the counts of one steering block.

    Attributes
    ----------
    visits : mapping of site to int
        How many passes went through each site in this block.
    steered_share : mapping of site to float
        The share of the selected positions that the gate assigned to a map; 0.0 while no position was selected.

    Every other attribute is read from the model and written to it, and ``isinstance`` sees the class of the model.
    """

    __slots__ = ("__weakref__", "_block", "_model")

    def __init__(self, model: nn.Module, block: Any) -> None:
        object.__setattr__(self, "_model", model)
        object.__setattr__(self, "_block", block)

    @property
    def visits(self) -> Mapping[str, int]:
        """How many passes went through each site in this block."""
        visits: Mapping[str, int] = object.__getattribute__(self, "_block").visits
        return visits

    @property
    def steered_share(self) -> Mapping[str, float]:
        """The share of the selected positions at each site that was steered."""
        share: Mapping[str, float] = object.__getattribute__(self, "_block").steered_share
        return share

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(behind(self))

    def __getattr__(self, name: str) -> Any:
        return getattr(behind(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(behind(self), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(behind(self), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        return behind(self)(*args, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        return behind(self)[key]

    def __len__(self) -> int:
        return len(behind(self))

    def __bool__(self) -> bool:
        return bool(behind(self))

    def __iter__(self) -> Any:
        return iter(behind(self))

    def __dir__(self) -> list[str]:
        return sorted({*dir(behind(self)), "steered_share", "visits"})

    def __repr__(self) -> str:
        return repr(behind(self))

    def __eq__(self, other: object) -> bool:
        return behind(self) is behind(other)

    def __hash__(self) -> int:
        return hash(behind(self))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return behind(self).__reduce_ex__(protocol)


def behind(model: Any) -> Any:
    """Return the model behind a `SteeredModel`; any other object unchanged."""
    return object.__getattribute__(model, "_model") if type(model) is SteeredModel else model


def unwrapped(model: Any) -> nn.Module:
    """Return the model inside wrappers that compute what it computes, or ``model`` itself.

    Such wrappers are those of PEFT, `torch.compile` and data parallelism, and `SteeredModel`.
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
        base: nn.Module = model.get_base_model()  # type: ignore[operator]
        return base
    if any(base.__name__ in _WITH_MODULE for base in type(model).__mro__) and isinstance(model.module, nn.Module):
        return model.module
    return model


def is_peft(model: nn.Module) -> bool:
    """Return whether ``model`` is a PEFT wrapper."""
    return callable(getattr(model, "get_base_model", None))


def virtual_tokens(model: Any) -> int:
    """Return how many virtual tokens PEFT's prompt or prefix tuning puts before every text; 0 without such tuning."""
    wrapper = behind(model)
    config: Any = wrapper.active_peft_config if is_peft(wrapper) else None
    return int(config.num_virtual_tokens) if getattr(config, "is_prompt_learning", False) else 0


def outermost_models(model: nn.Module) -> list[nn.Module]:
    """Return the transformers models in ``model`` that are not part of another; ``model`` itself if there are none."""
    from transformers import PreTrainedModel  # imported here because it takes longer than all of this package

    models: list[nn.Module] = []
    inside: set[int] = set()
    for module in model.modules():
        if isinstance(module, PreTrainedModel) and id(module) not in inside:
            models.append(module)
            inside.update(map(id, module.modules()))
    return models or [model]
