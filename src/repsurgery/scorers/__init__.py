"""Toxicity scorers: frozen functions from texts to numbers, named with version and digest."""

from repsurgery.scorers.archived import Agreement, agreement
from repsurgery.scorers.base import ToxicityScorer, load_scorer
from repsurgery.scorers.bilstm import BiLSTMScorer
from repsurgery.scorers.calibrated import CalibratedScorer
from repsurgery.scorers.classifier import ClassifierScorer, DetoxifyScorer
from repsurgery.scorers.linear import LinearScorer
from repsurgery.scorers.replay import ReplayScorer, read_archived
from repsurgery.scorers.scoring import Scored, score_texts

__all__ = [
    "Agreement",
    "BiLSTMScorer",
    "CalibratedScorer",
    "ClassifierScorer",
    "DetoxifyScorer",
    "LinearScorer",
    "ReplayScorer",
    "Scored",
    "ToxicityScorer",
    "agreement",
    "load_scorer",
    "read_archived",
    "score_texts",
]
