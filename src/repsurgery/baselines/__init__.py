"""Rival methods, written from their papers, to be measured beside ours."""

from repsurgery.baselines.fair_post_processing import ALPHAS, FairPostProcessing

__all__ = ["ALPHAS", "FairPostProcessing"]
