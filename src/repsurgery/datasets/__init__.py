"""Texts and vectors with labels and concepts: the embedded corpus, fairness and toxicity data, your own tables."""

from repsurgery.datasets.bios import load_bios
from repsurgery.datasets.courtesy import load_courtesy, load_prompts
from repsurgery.datasets.dialect import load_dialect, load_dialect_stand_in
from repsurgery.datasets.dialect_model import DialectModel
from repsurgery.datasets.documents import Documents, detokenise
from repsurgery.datasets.folder import data_folder
from repsurgery.datasets.jigsaw import load_jigsaw
from repsurgery.datasets.paradetox import load_paradetox, load_paradetox_pairs
from repsurgery.datasets.pronouns import load_gap, load_winobias
from repsurgery.datasets.ratios import sample_ratio
from repsurgery.datasets.real_toxicity_prompts import Prompts, load_real_toxicity_prompts
from repsurgery.datasets.records import ConceptTexts, LabelledTexts
from repsurgery.datasets.representations import Representations
from repsurgery.datasets.synthetic import make_bios
from repsurgery.datasets.tables import read_study, read_table
from repsurgery.datasets.wikitext import load_wikitext2

__all__ = [
    "ConceptTexts",
    "DialectModel",
    "Documents",
    "LabelledTexts",
    "Prompts",
    "Representations",
    "data_folder",
    "detokenise",
    "load_bios",
    "load_courtesy",
    "load_dialect",
    "load_dialect_stand_in",
    "load_gap",
    "load_jigsaw",
    "load_paradetox",
    "load_paradetox_pairs",
    "load_prompts",
    "load_real_toxicity_prompts",
    "load_wikitext2",
    "load_winobias",
    "make_bios",
    "read_study",
    "read_table",
    "sample_ratio",
]
