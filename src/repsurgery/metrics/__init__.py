"""Measures: pure functions from scores, texts and log-likelihoods to numbers."""

from repsurgery.metrics.text import distinct_n, expected_max_toxicity, mean_perplexity, toxicity_probability

__all__ = ["distinct_n", "expected_max_toxicity", "mean_perplexity", "toxicity_probability"]
