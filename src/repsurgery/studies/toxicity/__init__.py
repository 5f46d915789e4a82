"""The toxicity study: steer a model away from toxic text at every step, and measure what that does."""

from repsurgery.studies.toxicity.configuration import Configuration, parse_configuration
from repsurgery.studies.toxicity.run import run_toxicity
from repsurgery.studies.toxicity.spec import ToxicitySpec, load_toxicity_spec, make_toxicity_spec, toxicity_toml

__all__ = [
    "Configuration",
    "ToxicitySpec",
    "load_toxicity_spec",
    "make_toxicity_spec",
    "parse_configuration",
    "run_toxicity",
    "toxicity_toml",
]
