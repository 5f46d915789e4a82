"""Execution engines: local processes, Ray, Dask, torchrun."""
