"""Steer a running model: hooks, the context of a forward pass, positions, maps as torch functions."""
