"""Toxicity scorers: frozen functions from texts to numbers, named with version and digest."""

from repsurgery.scorers.base import ToxicityScorer
from repsurgery.scorers.linear import LinearScorer

__all__ = ["LinearScorer", "ToxicityScorer"]
