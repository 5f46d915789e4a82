"""Classifiers over representations, made for many rows and classes."""

__all__: list[str] = []
