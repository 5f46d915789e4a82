"""Texts and vectors with labels: the embedded corpus, tables of the user's own, and a synthetic Bios."""

from repsurgery.datasets.courtesy import load_courtesy, load_prompts
from repsurgery.datasets.records import LabelledTexts
from repsurgery.datasets.representations import Representations
from repsurgery.datasets.synthetic import make_bios
from repsurgery.datasets.tables import read_table

__all__ = ["LabelledTexts", "Representations", "load_courtesy", "load_prompts", "make_bios", "read_table"]
