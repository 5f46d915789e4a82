"""Reproductions of the paper's experiments, one folder per study."""
