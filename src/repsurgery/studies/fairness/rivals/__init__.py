"""Rival methods, written from their papers, to be measured beside ours."""

from repsurgery.studies.fairness.rivals.fair_post_processing import ALPHAS, FairPostProcessing

__all__ = ["ALPHAS", "FairPostProcessing"]
