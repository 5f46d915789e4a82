"""Decoding for rivals of steering: one sampler loop, models with their caches, and the parts that rivals train."""
