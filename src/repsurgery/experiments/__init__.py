"""Older import paths of the studies `harness` and `toxicity`; new code imports them from `repsurgery.studies`."""
