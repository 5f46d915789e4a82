"""Mergeable sufficient statistics of rows, by class."""

from repsurgery.moments.by_class import ClassMoments
from repsurgery.moments.moments import Moments

__all__ = ["ClassMoments", "Moments"]
