"""One statistic from many shards, processes and machines."""

from repsurgery.scale.cost import DEFAULT_RATES, Plan, Rates, plan
from repsurgery.scale.engines.base import Engine, Failure
from repsurgery.scale.engines.dask_engine import DaskEngine
from repsurgery.scale.engines.local import LocalEngine
from repsurgery.scale.engines.make import make_engine
from repsurgery.scale.engines.ray_engine import RayEngine
from repsurgery.scale.engines.torch_engine import all_reduce_moments
from repsurgery.scale.models.class_moments import class_moments
from repsurgery.scale.models.ray_actors import ray_class_moments
from repsurgery.scale.rates import measure_rates
from repsurgery.scale.reduce.files import merge_files
from repsurgery.scale.reduce.parts import Receipt
from repsurgery.scale.reduce.ray_data import ray_dataset_moments
from repsurgery.scale.reduce.shards import Reduced, reduce_shards
from repsurgery.scale.shards.checks import check_shards
from repsurgery.scale.shards.counting import Counted, NonFinite, count_shard
from repsurgery.scale.shards.hub import dataset_shards
from repsurgery.scale.shards.patterns import find_shards
from repsurgery.scale.shards.shard import FileShard, Schema, Shard

__all__ = [
    "DEFAULT_RATES",
    "Counted",
    "DaskEngine",
    "Engine",
    "Failure",
    "FileShard",
    "LocalEngine",
    "NonFinite",
    "Plan",
    "Rates",
    "RayEngine",
    "Receipt",
    "Reduced",
    "Schema",
    "Shard",
    "all_reduce_moments",
    "check_shards",
    "class_moments",
    "count_shard",
    "dataset_shards",
    "find_shards",
    "make_engine",
    "measure_rates",
    "merge_files",
    "plan",
    "ray_class_moments",
    "ray_dataset_moments",
    "reduce_shards",
]
