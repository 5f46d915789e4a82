"""Surgery on live language models: load, read, steer, generate, score, fold, export."""

from repsurgery.errors import MissingExtraError

try:
    import torch
    import transformers
except ImportError as error:
    raise MissingExtraError(
        f"repsurgery.lm needs PyTorch and Transformers ({error}): pip install 'repsurgery[lm]'"
    ) from error

from repsurgery.lm.along import states_along
from repsurgery.lm.class_moments import class_moments
from repsurgery.lm.control_vector import to_gguf
from repsurgery.lm.extract import extract
from repsurgery.lm.fingerprint import fingerprint
from repsurgery.lm.fluency import Surprise, surprises
from repsurgery.lm.fold import fold
from repsurgery.lm.fold_files import save_folded
from repsurgery.lm.generate import Generation, generate
from repsurgery.lm.lora import LoraExport, to_lora
from repsurgery.lm.models import load
from repsurgery.lm.origins import origin_of
from repsurgery.lm.perplexity import DocumentPerplexity, document_perplexity
from repsurgery.lm.score import Divergence, LogLikelihood, kl_divergence, log_likelihoods
from repsurgery.lm.seams import foldable_sites
from repsurgery.lm.sites import Site, resolve_site, site_names
from repsurgery.lm.steer import steer

del torch, transformers

__all__ = [
    "Divergence",
    "DocumentPerplexity",
    "Generation",
    "LogLikelihood",
    "LoraExport",
    "Site",
    "Surprise",
    "class_moments",
    "document_perplexity",
    "extract",
    "fingerprint",
    "fold",
    "foldable_sites",
    "generate",
    "kl_divergence",
    "load",
    "log_likelihoods",
    "origin_of",
    "resolve_site",
    "save_folded",
    "site_names",
    "states_along",
    "steer",
    "surprises",
    "to_gguf",
    "to_lora",
]
