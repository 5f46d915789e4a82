"""Measures of scores, texts, predictions and representations, with intervals and tests of their differences."""

from repsurgery.metrics.bootstrap import Bootstrapped, paired_bootstrap
from repsurgery.metrics.cosine import CosineBlocks, cosine_blocks
from repsurgery.metrics.expected_bias import expected_bias_by_neighbours
from repsurgery.metrics.fairness_intervals import FairnessIntervals, fairness_intervals
from repsurgery.metrics.intervals import Interval
from repsurgery.metrics.means import Mean
from repsurgery.metrics.neighbours import chance_level, nearest_neighbours, neighbour_bias, neighbour_shares
from repsurgery.metrics.probes import linear_probe_accuracy, majority_share, mlp_probe_accuracy
from repsurgery.metrics.rates import (
    accuracy,
    demographic_parity_difference,
    equalized_odds_difference,
    tpr_gap,
    tpr_gap_noise,
    tpr_gap_rms,
    tpr_gap_rms_predicted,
)
from repsurgery.metrics.significance import holm
from repsurgery.metrics.text import distinct_n, expected_max_toxicity, mean_perplexity, toxicity_probability

__all__ = [
    "Bootstrapped",
    "CosineBlocks",
    "FairnessIntervals",
    "Interval",
    "Mean",
    "accuracy",
    "chance_level",
    "cosine_blocks",
    "demographic_parity_difference",
    "distinct_n",
    "equalized_odds_difference",
    "expected_bias_by_neighbours",
    "expected_max_toxicity",
    "fairness_intervals",
    "holm",
    "linear_probe_accuracy",
    "majority_share",
    "mean_perplexity",
    "mlp_probe_accuracy",
    "nearest_neighbours",
    "neighbour_bias",
    "neighbour_shares",
    "paired_bootstrap",
    "toxicity_probability",
    "tpr_gap",
    "tpr_gap_noise",
    "tpr_gap_rms",
    "tpr_gap_rms_predicted",
]
