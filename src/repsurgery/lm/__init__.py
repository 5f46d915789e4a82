"""Surgery on live language models: load, read, steer, generate, score, fold, export."""

from repsurgery.errors import MissingExtraError

try:
    import platformdirs
    import psutil
    import torch
    import transformers
except ImportError as error:
    raise MissingExtraError(
        f"repsurgery.lm needs PyTorch, Transformers, platformdirs and psutil ({error}): pip install 'repsurgery[lm]'"
    ) from error

from repsurgery.exporters import ExportTarget
from repsurgery.lm.chat import assistant_turns, chat_prompt
from repsurgery.lm.fold.fold import fold
from repsurgery.lm.fold.fold_points import foldable_sites
from repsurgery.lm.fold.gguf import to_gguf
from repsurgery.lm.fold.lora import LoraExport, to_lora
from repsurgery.lm.fold.save import save_folded
from repsurgery.lm.fold.targets import export_targets
from repsurgery.lm.generate.generate import Generation, generate
from repsurgery.lm.generate.row_decoder import RowDecoder
from repsurgery.lm.load.fingerprint import fingerprint
from repsurgery.lm.load.memory import MemoryPlan, plan_memory
from repsurgery.lm.load.models import load
from repsurgery.lm.load.origin import origin_of
from repsurgery.lm.policy.on_policy import OnPolicy, on_policy
from repsurgery.lm.price.credit_gradients import credit_gradients
from repsurgery.lm.price.fisher import fisher
from repsurgery.lm.price.price import price
from repsurgery.lm.read.class_moments import class_moments
from repsurgery.lm.read.extract import extract
from repsurgery.lm.read.generation_states import states_along
from repsurgery.lm.score.conditional_nll import Surprise, surprises
from repsurgery.lm.score.divergence import Divergence, kl_divergence
from repsurgery.lm.score.likelihood import LogLikelihood, log_likelihoods
from repsurgery.lm.score.perplexity import DocumentPerplexity, document_perplexity
from repsurgery.lm.sites.names import Site, resolve_site, site_names
from repsurgery.lm.steer.placement import Placement
from repsurgery.lm.steer.rows import Choice
from repsurgery.lm.steer.steer import steer
from repsurgery.lm.steer.steer_rows import SteeredRows, steer_rows

del platformdirs, psutil, torch, transformers

__all__ = [
    "Choice",
    "Divergence",
    "DocumentPerplexity",
    "ExportTarget",
    "Generation",
    "LogLikelihood",
    "LoraExport",
    "MemoryPlan",
    "OnPolicy",
    "Placement",
    "RowDecoder",
    "Site",
    "SteeredRows",
    "Surprise",
    "assistant_turns",
    "chat_prompt",
    "class_moments",
    "credit_gradients",
    "document_perplexity",
    "export_targets",
    "extract",
    "fingerprint",
    "fisher",
    "fold",
    "foldable_sites",
    "generate",
    "kl_divergence",
    "load",
    "log_likelihoods",
    "on_policy",
    "origin_of",
    "plan_memory",
    "price",
    "resolve_site",
    "save_folded",
    "site_names",
    "states_along",
    "steer",
    "steer_rows",
    "surprises",
    "to_gguf",
    "to_lora",
]
