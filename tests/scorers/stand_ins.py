"""Scorers that need no package: they read a number out of the text."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Length:
    """Score a text by its length over 100; a blank one scores None."""

    name: str = "length"
    version: str = "1"
    digest: str = "0" * 64

    def __call__(self, texts):
        return [min(len(text) / 100, 1) if text.strip() else None for text in texts]
