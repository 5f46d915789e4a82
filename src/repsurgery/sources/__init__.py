"""Labelled vectors on disk and in streams, as shards that are read in bounded batches."""

from repsurgery.sources.checks import check_shards
from repsurgery.sources.counting import Counted, NonFinite, count_shard
from repsurgery.sources.hub import dataset_shards
from repsurgery.sources.patterns import find_shards
from repsurgery.sources.shard import FileShard, Schema, Shard

__all__ = [
    "Counted",
    "FileShard",
    "NonFinite",
    "Schema",
    "Shard",
    "check_shards",
    "count_shard",
    "dataset_shards",
    "find_shards",
]
