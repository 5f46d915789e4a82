"""Rival methods; the import path of `repsurgery.studies.fairness.rivals` that users know."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    "repsurgery.studies.fairness.rivals", submod_attrs={"fair_post_processing": ["ALPHAS", "FairPostProcessing"]}
)
