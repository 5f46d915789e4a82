"""Moments from many processes and machines; the import path of `repsurgery.scale` that users know."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    "repsurgery.scale",
    submod_attrs={
        "cost": ["DEFAULT_RATES", "Plan", "Rates", "plan"],
        "engines.base": ["Engine", "Failure"],
        "engines.dask_engine": ["DaskEngine"],
        "engines.local": ["LocalEngine"],
        "engines.make": ["make_engine"],
        "engines.ray_engine": ["RayEngine"],
        "engines.torch_engine": ["all_reduce_moments"],
        "models.class_moments": ["class_moments"],
        "models.ray_actors": ["ray_class_moments"],
        "rates": ["measure_rates"],
        "reduce.files": ["merge_files"],
        "reduce.parts": ["Receipt"],
        "reduce.ray_data": ["ray_dataset_moments"],
        "reduce.shards": ["Reduced", "reduce_shards"],
    },
)
