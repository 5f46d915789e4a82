"""Texts with labels: the embedded corpus, and tables of the user's own."""

from repsurgery.datasets.courtesy import load_courtesy, load_prompts
from repsurgery.datasets.records import LabelledTexts
from repsurgery.datasets.tables import read_table

__all__ = ["LabelledTexts", "load_courtesy", "load_prompts", "read_table"]
