"""What a steering block yields: the model, with the counts of that block beside it."""

from collections.abc import Mapping
from typing import Any

from torch import nn

__all__ = ["SteeredModel", "behind"]


class SteeredModel:
    """Behave as ``model`` in every respect, and know what one steering block has done so far.

    Attributes
    ----------
    visits : mapping of site to int
        How many passes went through each site in this block.
    steered_share : mapping of site to float
        Of the positions asked for there, the share that the gate handed to a map; 0.0 while there were none.

    Everything else is the model's own: attributes are read from it and written to it, and ``isinstance`` sees its
    class.
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
        """Of the positions asked for at each site, the share that was steered."""
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
    """Return the model that a stand-in stands for; anything else as it is."""
    return object.__getattribute__(model, "_model") if type(model) is SteeredModel else model
