"""Engines by name."""

from typing import Literal

from repsurgery.errors import ParameterError
from repsurgery.scale.engines.base import Engine
from repsurgery.scale.engines.dask_engine import DaskEngine
from repsurgery.scale.engines.local import LocalEngine
from repsurgery.scale.engines.ray_engine import RayEngine

__all__ = ["EngineName", "make_engine"]

EngineName = Literal["local", "ray", "dask"]


def make_engine(name: EngineName, *, workers: int | None = None, address: str | None = None) -> Engine:
    """Return an engine by its name; Ray and Dask are imported when the engine is entered."""
    if name == "local":
        if address is not None:
            raise ParameterError("The local engine has no address. Choose the engine ray or dask, or omit the address.")
        return LocalEngine(workers=workers)
    if name == "ray":
        return RayEngine(workers=workers, address=address)
    if name == "dask":
        return DaskEngine(workers=workers, address=address)
    raise ParameterError(f"There is no engine {name!r}; choose local, ray or dask.")
