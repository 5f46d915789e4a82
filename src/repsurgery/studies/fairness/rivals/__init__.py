"""Competing methods, implemented from their papers, for comparison."""

from repsurgery.studies.fairness.rivals.fair_post_processing import ALPHAS, FairPostProcessing

__all__ = ["ALPHAS", "FairPostProcessing"]
