"""Fairness in classification: the paper's two studies, and any other table with a task and a concept."""

from repsurgery.studies.fairness.encoders import ENCODERS
from repsurgery.studies.fairness.run import run_study
from repsurgery.studies.fairness.spec import PRESETS, StudySpec, load_spec, make_spec, spec_toml

__all__ = ["ENCODERS", "PRESETS", "StudySpec", "load_spec", "make_spec", "run_study", "spec_toml"]
