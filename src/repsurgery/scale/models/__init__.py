"""Moments of a model's hidden states, computed on several processes or machines."""
