"""The toxicity study; the import path of `repsurgery.studies.toxicity` that users know."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    "repsurgery.studies.toxicity",
    submod_attrs={
        "configuration": ["Configuration", "parse_configuration"],
        "run": ["run_toxicity"],
        "spec": ["ToxicitySpec", "load_toxicity_spec", "make_toxicity_spec", "toxicity_toml"],
    },
)
