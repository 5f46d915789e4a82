"""Surgery on live language models: load, read, steer, generate, score."""

from repsurgery.errors import MissingExtraError

try:
    import torch
    import transformers
except ImportError as error:
    raise MissingExtraError(
        f"repsurgery.lm needs PyTorch and Transformers ({error}): pip install 'repsurgery[lm]'"
    ) from error

from repsurgery.lm.class_moments import class_moments
from repsurgery.lm.extract import extract
from repsurgery.lm.generate import Generation, generate
from repsurgery.lm.models import load
from repsurgery.lm.score import Divergence, LogLikelihood, kl_divergence, log_likelihoods
from repsurgery.lm.sites import Site, resolve_site, site_names
from repsurgery.lm.steer import steer

del torch, transformers

__all__ = [
    "Divergence",
    "Generation",
    "LogLikelihood",
    "Site",
    "class_moments",
    "extract",
    "generate",
    "kl_divergence",
    "load",
    "log_likelihoods",
    "resolve_site",
    "site_names",
    "steer",
]
