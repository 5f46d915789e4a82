"""Labelled vectors on disk and in streams; the import path of `repsurgery.scale.shards` that users know."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    "repsurgery.scale.shards",
    submod_attrs={
        "checks": ["check_shards"],
        "counting": ["Counted", "NonFinite", "count_shard"],
        "hub": ["dataset_shards"],
        "patterns": ["find_shards"],
        "shard": ["FileShard", "Schema", "Shard"],
    },
)
