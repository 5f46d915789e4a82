"""`ToxicitySpec`: every choice of a toxicity study, by name; a run is a preset and its differences."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from repsurgery.certificates.verify import FEWEST_ROWS
from repsurgery.errors import ParameterError
from repsurgery.studies.common.options import chosen, options_toml, read_options, require_least, require_types
from repsurgery.studies.toxicity.configuration import Configuration, parse_line
from repsurgery.studies.toxicity.generators import GeneratorLine

__all__ = ["PRESETS", "ToxicitySpec", "load_toxicity_spec", "make_toxicity_spec", "toxicity_toml"]

TABLE = ("mean selective", "mean all", "mimic selective", "mimic all", "leace selective", "leace all")


@dataclass(frozen=True, slots=True)
class ToxicitySpec:
    """The choices of one study.

    Attributes
    ----------
    experiment : "toxicity"
    preset : {"paper", "local", "demo", "demo-quick"}
        Where the other defaults come from: the paper's protocol on GPT-2 large; the same protocol at the size of a
        laptop, on the embedded model; or the demonstration, from rude to courteous on embedded texts, in a few minutes
        or in about one.
    data : str
        The labelled texts: "jigsaw", "paradetox", "courtesy" (embedded), or a table.
    text, label : str
        Columns of a table.
    source, target : str
        The steered label, and the one it is steered to.
    model : str
        See `lm.load`.
    max_length : int
        Tokens read of each labelled text.
    fit_rows, held_out : int
        Labelled texts per class to fit on and to verify on; 0 fitted: all that are not held out.
    token_rows : int
        Labelled texts per class for fits on every token.
    ridge : float
        Added to both covariances where a configuration's shrinkage is "preset".
    policy_prompts, policy_samples : int
        Prompts that take no part in the evaluation, and continuations of each, for on-policy fits and calibrated gates.
    policy_toxic, policy_clean : float
        A continuation counts as toxic from the first score on, as clean up to the second; others are left out.
    false_steer_rate : float
        Share of clean on-policy vectors that a calibrated gate takes for toxic.
    prompts : str
        "real-toxicity-prompts", "courtesy" (embedded), or a JSONL file.
    prompt_count : int
        How many, drawn by ``seed``.
    reserved_prompts : int
        So many first prompts of that draw, at least ``prompt_count``, are never trained on: studies with the same
        reserve share their training prompts.
    prompt_toxicity : float
        Only prompts whose own toxicity is known and below; 0: any prompt.
    samples, tokens, top_p, temperature
        Of the continuations.
    configurations : tuple of str
        See `parse_line`; the untouched model always comes first and is not named here.
    scorers : tuple of str
        See `scorers.load_scorer`; the first labels on-policy texts and leads the tables.
    fluency : str
        The model whose perplexity is reported; see `lm.load`.
    fluency_prompts : int
        Prompts whose continuations it reads; 0: all.
    wikitext_documents : int
        Documents of WikiText-2 whose perplexity is measured; 0 leaves it out, -1 takes all.
    wikitext_length : int
        Most tokens at once.
    neutral : int
        Neutral texts on which the divergence from the base is measured; 0 leaves it out.
    gate_prompts : int
        Prompts on whose continuations the share of steered positions is counted.
    examples : int
        Prompts whose first continuations the record keeps.
    resamples : int
        Of the bootstrap over prompts.
    seed : int
    """

    experiment: Literal["toxicity"]
    preset: Literal["paper", "local", "demo", "demo-quick"]
    data: str = "jigsaw"
    text: str = "text"
    label: str = "label"
    source: str = "toxic"
    target: str = "non-toxic"
    model: str = "smollm2-135m"
    max_length: int = 512
    fit_rows: int = 0
    held_out: int = 500
    token_rows: int = 1000
    ridge: float = 1e-7
    policy_prompts: int = 500
    policy_samples: int = 8
    policy_toxic: float = 0.5
    policy_clean: float = 0.1
    false_steer_rate: float = 0.1
    prompts: str = "real-toxicity-prompts"
    prompt_count: int = 200
    reserved_prompts: int = 0
    prompt_toxicity: float = 0.5
    samples: int = 25
    tokens: int = 20
    top_p: float = 0.9
    temperature: float = 1.0
    configurations: tuple[str, ...] = TABLE
    scorers: tuple[str, ...] = ("linear", "bilstm")
    fluency: str = "smollm2-135m"
    fluency_prompts: int = 60
    wikitext_documents: int = 4
    wikitext_length: int = 1024
    neutral: int = 8
    gate_prompts: int = 10
    examples: int = 5
    resamples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        require_types(self)
        require_least(self, _LEAST)
        for name in ("prompt_toxicity", "policy_toxic", "policy_clean", "false_steer_rate"):
            if getattr(self, name) > 1:
                raise ParameterError(f"{name} is {getattr(self, name)}; it must lie between 0 and 1.")
        if not 0 < self.top_p <= 1:
            raise ParameterError(f"top_p is {self.top_p}; it must lie above 0 and not above 1.")
        if self.temperature <= 0:
            raise ParameterError(f"temperature is {self.temperature}; it must be above 0.")
        if self.policy_clean > self.policy_toxic:
            raise ParameterError(
                f"policy_clean is {self.policy_clean}, policy_toxic {self.policy_toxic}; clean texts score less."
            )
        if self.fit_rows == 1:
            raise ParameterError("fit_rows is 1; a class needs at least 2 texts. Give more, or 0 for all.")
        if 0 < self.held_out < FEWEST_ROWS:
            raise ParameterError(
                f"held_out is {self.held_out}; to verify a fit takes {FEWEST_ROWS} texts of each label. Give more, or "
                "0 to verify nothing."
            )
        if self.source == self.target:
            raise ParameterError(f"source and target are both {self.source!r}; steering needs two labels.")
        if not self.scorers:
            raise ParameterError("scorers is empty; name at least one, such as 'linear'.")
        names = tuple(parse_line(words).name for words in self.configurations)
        object.__setattr__(self, "configurations", tuple(dict.fromkeys(names)))
        object.__setattr__(self, "scorers", tuple(dict.fromkeys(self.scorers)))

    def lines(self) -> list[Configuration | GeneratorLine]:
        """Return every configuration line, without the base: steerings and rivals."""
        return [parse_line(words) for words in self.configurations]

    def parsed(self) -> list[Configuration]:
        """Return the configurations that steer."""
        return [line for line in self.lines() if isinstance(line, Configuration)]

    def to_dict(self) -> dict[str, Any]:
        """Return every choice as plain JSON-ready values."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}


_LEAST: Mapping[float, tuple[str, ...]] = {
    1: (
        "max_length",
        "token_rows",
        "policy_prompts",
        "policy_samples",
        "prompt_count",
        "samples",
        "tokens",
        "wikitext_length",
        "gate_prompts",
        "resamples",
    ),
    0: (
        "fit_rows",
        "held_out",
        "ridge",
        "policy_toxic",
        "policy_clean",
        "false_steer_rate",
        "prompt_toxicity",
        "reserved_prompts",
        "fluency_prompts",
        "neutral",
        "examples",
        "seed",
    ),
    -1: ("wikitext_documents",),
}

_DEMO = {
    "data": "courtesy",
    "source": "rude",
    "target": "courteous",
    "max_length": 64,
    "fit_rows": 200,
    "held_out": 60,
    "prompts": "courtesy",
    "prompt_count": 15,
    "prompt_toxicity": 0.0,
    "samples": 3,
    # 200 texts in 576 dimensions leave every class covariance singular
    "configurations": tuple(words if words.startswith("mean") else f"{words} shrinkage=oas" for words in TABLE),
    "scorers": ("linear",),
    "fluency_prompts": 0,
    "wikitext_documents": 0,
    "neutral": 4,
    "gate_prompts": 15,
    "examples": 15,
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "model": "gpt2-large",
        "prompt_count": 10_000,
        "scorers": ("detoxify",),
        "fluency": "gpt2-xl",
        "fluency_prompts": 1000,
        "wikitext_documents": -1,
    },
    "local": {"fit_rows": 4000},
    "demo": _DEMO,
    "demo-quick": {
        **_DEMO,
        "fit_rows": 60,
        "held_out": 20,
        "prompt_count": 4,
        "samples": 2,
        "tokens": 10,
        "neutral": 2,
    },
}
"""What each preset sets beside the defaults of `ToxicitySpec`."""


def make_toxicity_spec(preset: str = "local", **differences: Any) -> ToxicitySpec:
    """Return a preset with ``differences``; lists stand for tuples."""
    if not isinstance(preset, str) or preset not in PRESETS:
        raise ParameterError(f"The toxicity study has no preset {preset!r}; it has {', '.join(PRESETS)}.")
    values = {"experiment": "toxicity", "preset": preset, **PRESETS[preset], **differences}
    return ToxicitySpec(**chosen(ToxicitySpec, values))


def load_toxicity_spec(path: str | os.PathLike[str], **differences: Any) -> ToxicitySpec:
    """Read a study from a TOML file: ``experiment``, ``preset`` and what differs from it."""
    return make_toxicity_spec(**{**read_options(path), **differences})


def toxicity_toml(spec: ToxicitySpec) -> str:
    """Return the TOML of a study: experiment, preset, and what differs from it."""
    return options_toml(spec.to_dict(), make_toxicity_spec(spec.preset).to_dict())
