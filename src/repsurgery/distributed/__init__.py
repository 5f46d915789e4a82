"""One statistic from many shards, processes and machines: adapters over engines that exist."""

from repsurgery.distributed.base import Engine, Failure
from repsurgery.distributed.class_moments import class_moments
from repsurgery.distributed.dask_engine import DaskEngine
from repsurgery.distributed.engines import make_engine
from repsurgery.distributed.local import LocalEngine
from repsurgery.distributed.merging import merge_files
from repsurgery.distributed.parts import Receipt
from repsurgery.distributed.plan import DEFAULT_RATES, Plan, Rates, plan
from repsurgery.distributed.rates import measure_rates
from repsurgery.distributed.ray_actors import ray_class_moments
from repsurgery.distributed.ray_data import ray_dataset_moments
from repsurgery.distributed.ray_engine import RayEngine
from repsurgery.distributed.reducing import Reduced, reduce_shards
from repsurgery.distributed.torch_engine import all_reduce_moments

__all__ = [
    "DEFAULT_RATES",
    "DaskEngine",
    "Engine",
    "Failure",
    "LocalEngine",
    "Plan",
    "Rates",
    "RayEngine",
    "Receipt",
    "Reduced",
    "all_reduce_moments",
    "class_moments",
    "make_engine",
    "measure_rates",
    "merge_files",
    "plan",
    "ray_class_moments",
    "ray_dataset_moments",
    "reduce_shards",
]
