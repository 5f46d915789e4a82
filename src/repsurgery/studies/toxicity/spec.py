"""`ToxicitySpec`: every option of a toxicity study; a run is a preset and its differences."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from repsurgery.certificates.verify import FEWEST_ROWS
from repsurgery.errors import ParameterError
from repsurgery.studies.common.checked import (
    Count,
    Field,
    Natural,
    NonNegative,
    Several,
    Share,
    Specification,
    Unique,
    checked,
    field_validator,
    model_validator,
)
from repsurgery.studies.common.naming import plain_name
from repsurgery.studies.common.options import options_toml, read_options
from repsurgery.studies.toxicity.configuration import Configuration, Line, parse_line
from repsurgery.studies.toxicity.tuned import TunedLine

__all__ = ["PRESETS", "ToxicitySpec", "load_toxicity_spec", "make_toxicity_spec", "toxicity_toml"]

TABLE = ("mean selective", "mean all", "mimic selective", "mimic all", "leace selective", "leace all")
POOLED = tuple(f"{words} shrinkage=pooled" if words.startswith("mimic") else words for words in TABLE)
"""The same methods where MiMiC takes from each class only as much covariance as its texts support."""


@checked(ParameterError)
class ToxicitySpec(Specification):
    """The options of one study.

    Attributes
    ----------
    experiment : "toxicity"
    preset : {"paper", "local"}
        The source of the other defaults: the paper's protocol on GPT-2 large; or the same protocol on the embedded
        model, with pooled shrinkage for MiMiC and at a size that a laptop can run.
    data : str
        The labelled texts: "jigsaw", "paradetox", "courtesy" (embedded), or the path of a table.
    text, label : str
        Columns of a table. In a table without columns of these names, the columns are found by what they hold.
    source, target : str
        The label that is steered, and the label it is steered to.
    model : str
        See `lm.load`.
    max_length : int
        Labelled texts are truncated to this many tokens.
    fit_rows, held_out : int
        Labelled texts per class for fitting and for verification; ``fit_rows=0`` takes all that are not held out.
    token_rows : int
        Labelled texts per class for fits on every token.
    ridge : float
        Added to both covariances where a configuration's shrinkage is "preset".
    policy_prompts, policy_samples : int
        Training prompts, disjoint from the evaluation prompts, and continuations of each, for on-policy fits and
        calibrated gates.
    policy_toxic, policy_clean : float
        A continuation counts as toxic if it scores at least the first, as clean if it scores at most the second;
        others are left out.
    policy_step : float
        With ``credit=step``, a step counts as toxic if it raises the score by at least this much.
    policy_texts : int
        The largest number of on-policy texts of each label whose steps are read for a fit; 0 for all.
    round_prompts : int
        Training prompts that are continued in each on-policy round after the first; 0 for all.
    false_steer_rate : float
        Share of clean on-policy vectors that a calibrated gate classifies as toxic.
    prompts : str
        "real-toxicity-prompts", "courtesy" (embedded), a text file with one prompt per line, or a table.
    prompt_column : str
        The column of the prompts in a table; if empty, it is found.
    prompt_count : int
        Number of evaluation prompts, drawn with ``seed``.
    reserved_prompts : int
        The first ``reserved_prompts`` prompts of that draw, at least ``prompt_count``, are never used for training:
        studies with the same reserve have the same training prompts.
    prompt_toxicity : float
        Draw only prompts with a known toxicity below this bound; 0 draws from all prompts.
    samples, tokens, top_p, temperature
        Continuations per prompt, tokens of each, and the parameters of sampling.
    configurations : tuple of str
        See `parse_line`; the base model always comes first.
    scorers : tuple of str
        See `scorers.load_scorer`; the first one labels on-policy texts and comes first in the tables.
    fluency : str or tuple of str
        The model that judges fluency, or several; see `lm.load`. The first one's perplexity is in the main tables.
    fluency_prompts : int
        Number of prompts whose continuations they read; 0 for all.
    wikitext_documents : int
        Documents of WikiText-2 whose perplexity is measured; 0 for none, -1 for all.
    wikitext_length : int
        Largest number of tokens in one window.
    neutral : int
        Neutral texts on which the divergence from the base is measured; 0 for none.
    gate_prompts : int
        Prompts on whose continuations the share of steered positions is counted.
    examples : int
        Prompts whose first continuations are stored in the record.
    cost_rounds : int
        Rounds in which each configuration writes a few texts beside the base, to measure the cost of a token; 0 leaves
        the measurement out.
    resamples : int
        The fewest resamples of the bootstrap over prompts; there are at least 200 for each configuration.
    seed : int

    Notes
    -----
    With texts or prompts of the user's own, the options in `FOLLOWING` that have the value of the preset follow the
    data.
    """

    experiment: Literal["toxicity"]
    preset: Literal["paper", "local"]
    data: str = "jigsaw"
    text: str = "text"
    label: str = "label"
    source: str = "toxic"
    target: str = "non-toxic"
    model: str = "smollm2-135m"
    max_length: Count = 512
    fit_rows: Natural = 0
    held_out: Natural = 500
    token_rows: Count = 1000
    ridge: NonNegative = 1e-7
    policy_prompts: Count = 500
    policy_samples: Count = 8
    policy_toxic: Share = 0.5
    policy_clean: Share = 0.1
    policy_step: Annotated[float, Field(gt=0, le=1)] = 0.1
    policy_texts: Natural = 0
    round_prompts: Natural = 0
    false_steer_rate: Share = 0.1
    prompts: str = "real-toxicity-prompts"
    prompt_column: str = ""
    prompt_count: Count = 200
    reserved_prompts: Natural = 0
    prompt_toxicity: Share = 0.5
    samples: Count = 25
    tokens: Count = 20
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.9
    temperature: Annotated[float, Field(gt=0)] = 1.0
    configurations: Several[str] = TABLE
    scorers: Annotated[Unique[str], Field(min_length=1)] = ("linear", "bilstm")
    fluency: str | Annotated[Unique[str], Field(min_length=1)] = "smollm2-135m"
    fluency_prompts: Natural = 60
    wikitext_documents: Annotated[int, Field(ge=-1)] = 4
    wikitext_length: Count = 1024
    neutral: Natural = 8
    gate_prompts: Count = 10
    examples: Natural = 5
    cost_rounds: Natural = 3
    resamples: Count = 1000
    seed: Natural = 0

    @field_validator("configurations")
    @classmethod
    def _canonical(cls, configurations: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(parse_line(words).name for words in configurations))

    @model_validator(mode="after")
    def _require_consistent(self) -> "ToxicitySpec":
        if self.policy_clean > self.policy_toxic:
            raise ParameterError(
                f"policy_clean is {self.policy_clean} and policy_toxic is {self.policy_toxic}; policy_clean must not "
                "be the larger."
            )
        if self.fit_rows == 1:
            raise ParameterError("fit_rows is 1; a class needs at least 2 texts. Set more, or 0 for all.")
        if 0 < self.held_out < FEWEST_ROWS:
            raise ParameterError(
                f"held_out is {self.held_out}; verifying a fit needs at least {FEWEST_ROWS} texts of each label. Set "
                "more, or 0 to skip the verification."
            )
        if len(names := list(map(plain_name, self.judges))) != len(set(names)):
            raise ParameterError(
                f"fluency names two models called {max(names, key=names.count)!r}, which a record could not tell "
                "apart. Rename the folder of one of them."
            )
        if self.source == self.target:
            raise ParameterError(f"source and target are both {self.source!r}; steering needs two labels.")
        return self

    @property
    def judges(self) -> tuple[str, ...]:
        """The models that judge fluency."""
        return (self.fluency,) if isinstance(self.fluency, str) else self.fluency

    def lines(self) -> list[Line]:
        """Return every configuration line, without the base: steerings, searches for one, and rivals."""
        return [parse_line(words) for words in self.configurations]

    def parsed(self) -> list[Configuration]:
        """Return the configurations that state how to steer."""
        return [line for line in self.lines() if isinstance(line, Configuration)]

    def searches(self) -> list[TunedLine]:
        """Return the tuned lines for which the study itself searches."""
        return [line for line in self.tuned() if line.file is None]

    def tuned(self) -> list[TunedLine]:
        """Return the tuned lines: those that state a price, and those that name a file."""
        return [line for line in self.lines() if isinstance(line, TunedLine)]


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "model": "gpt2-large",
        "prompt_count": 10_000,
        "scorers": ("detoxify",),
        "fluency": "gpt2-xl",
        "fluency_prompts": 1000,
        "wikitext_documents": -1,
    },
    "local": {"fit_rows": 4000, "configurations": POOLED},
}
"""What each preset changes in the defaults of `ToxicitySpec`."""


def make_toxicity_spec(preset: str = "local", **differences: Any) -> ToxicitySpec:
    """Return a preset with some options changed."""
    if not isinstance(preset, str) or preset not in PRESETS:
        raise ParameterError(f"The toxicity study has no preset {preset!r}; it has {', '.join(PRESETS)}.")
    options = {"experiment": "toxicity", "preset": preset, **PRESETS[preset], **differences}
    return replace(ToxicitySpec(**options), stated=tuple(differences))


def load_toxicity_spec(path: str | os.PathLike[str], **differences: Any) -> ToxicitySpec:
    """Read a study from a TOML file with ``experiment``, ``preset`` and the options that differ from the preset."""
    return make_toxicity_spec(**{**read_options(path), **differences})


def toxicity_toml(spec: ToxicitySpec) -> str:
    """Return a study as TOML: experiment, preset, and the options that were stated or differ from the preset."""
    return options_toml(spec.to_dict(), make_toxicity_spec(spec.preset).to_dict(), spec.stated)
