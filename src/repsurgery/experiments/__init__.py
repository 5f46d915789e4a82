"""Experiments: code that turns texts, a model and a few choices into fitted files and records."""

from repsurgery.experiments.compare import Compared, compare
from repsurgery.experiments.demo import run_demo
from repsurgery.experiments.fitting import METHODS, fit_moments, fit_table
from repsurgery.experiments.folding import fold_into
from repsurgery.experiments.opening import Opened, open_steering, open_steerings
from repsurgery.experiments.scale import FULL, QUICK, Scale

__all__ = [
    "FULL",
    "METHODS",
    "QUICK",
    "Compared",
    "Opened",
    "Scale",
    "compare",
    "fit_moments",
    "fit_table",
    "fold_into",
    "open_steering",
    "open_steerings",
    "run_demo",
]
