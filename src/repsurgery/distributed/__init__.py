"""One statistic from many shards, processes and machines: adapters over engines that exist."""

from repsurgery.distributed.base import Engine, Failure
from repsurgery.distributed.dask_engine import DaskEngine
from repsurgery.distributed.engines import make_engine
from repsurgery.distributed.local import LocalEngine
from repsurgery.distributed.merging import merge_files
from repsurgery.distributed.parts import Receipt
from repsurgery.distributed.ray_data import ray_dataset_moments
from repsurgery.distributed.ray_engine import RayEngine
from repsurgery.distributed.reducing import Reduced, reduce_shards
from repsurgery.distributed.torch_engine import all_reduce_moments

__all__ = [
    "DaskEngine",
    "Engine",
    "Failure",
    "LocalEngine",
    "RayEngine",
    "Receipt",
    "Reduced",
    "all_reduce_moments",
    "make_engine",
    "merge_files",
    "ray_dataset_moments",
    "reduce_shards",
]
