"""Surgery on live language models."""

from repsurgery.lm.models import load

__all__ = ["load"]
