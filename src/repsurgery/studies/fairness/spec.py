"""`StudySpec`: every option of a fairness study; a run is a preset and its differences."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from repsurgery.errors import ParameterError
from repsurgery.moments.shrinkage import SHRINKAGES
from repsurgery.steering.base import METHODS
from repsurgery.studies.common.checked import (
    Count,
    Field,
    Natural,
    NonNegative,
    Several,
    Specification,
    checked,
    field_validator,
    model_validator,
)
from repsurgery.studies.common.options import options_toml, read_options

__all__ = ["NAMED_DATA", "PRESETS", "SYNTHETIC", "StudySpec", "load_spec", "make_spec", "spec_toml"]

Truth = Literal["gold", "predicted"]
_STRENGTH = " strength="
SYNTHETIC = "synthetic-bios"
"""Vectors instead of texts, drawn from a distribution that imitates Bias in Bios."""
NAMED_DATA = ("bios", "dialect", "dialect-stand-in", "gap", "winobias", SYNTHETIC)
"""Data of the paper, and data in their place; everything else is a reader's own table."""


@checked(ParameterError)
class StudySpec(Specification):
    """The options of one study; where the paper's text and its released code differ, there is an option for it.

    Attributes
    ----------
    experiment : {"bios", "dialect"}
        "bios" has one training set, all rows of the data; "dialect" has one training set per ratio.
    preset : {"paper", "released"}
        The source of the other defaults: the paper's text, or the code published with it.
    data : str
        A name of `repsurgery.studies.fairness.data.SOURCES`, a table, or a folder of tables.
    text, label, concept, split : str
        Columns of a table; an empty ``label`` means a study without task, an empty ``split`` a random split.
    encoder : str
        "minilm", "smollm2-135m", "bert", "gpt2", "llama2", a folder or a hub id.
    site, pooling, max_length
        See `lm.extract`; pooling "auto" is the usual one of the encoder.
    components : int
        Number of principal components; 0 uses the encoder's own dimensions, -1 the encoder's usual number.
    components_from : {"train", "all"}
        The rows whose principal components are used.
    methods : tuple of str
        "xian" and names of `METHODS`, also with a shrinkage appended ("mimic-oas") and with a strength between 0 and 1
        ("mimic-oas strength=0.5"); "base" always comes first.
    source, target : str
        The concept that is steered, and the concept it is steered to.
    fit_labels, train_labels, test_labels : {"gold", "predicted"}
        Whether the annotated concept or the classifier's prediction decides: which rows the maps are fitted on, which
        training rows are steered, and which dev and test rows are steered.
    fit_weights : {"rows", "balanced"}
        Whether the maps are fitted with equal weights, or with weights under which both concepts have the same mix of
        task labels. With equal weights the difference between the concepts' moments contains part of the task, and
        matching them overcorrects.
    concept_classifier : {"mlp", "linear"}
    early_stopping : bool
        Whether the MLP stops early.
    head : {"converged", "saga"}
        The logistic regression of the task: at its optimum, or after ``head_epochs`` of the released solver.
    tpr_classes : {"all", "predicted"}
        The classes in the table's RMS gap: all with both groups, or those predicted correctly at least once by the
        method's classifier. The record contains both.
    ridge : float
        Added to both covariances of MiMiC.
    alphas, criteria, post_groups : tuples
        Of the post-processing; each combination is a row. With the groups "gold" or "predicted" it is
        attribute-aware, with "blind" it uses P(concept, label | representation) instead of groups.
    post_rows : {"dev", "all"}
        Rows on which the post-processing is fitted: dev, or train and dev with scores of the training rows from five
        folds. With WinoBias only all of them have the mix of sentences that test has.
    post_calibration : {"none", "vector-scaling"}
        Whether the scores are calibrated on these rows before, for each group; rare classes are changed less.
    neighbour_counts, neighbour_queries, neighbour_rows, neighbour_split
        The numbers k of neighbours, the number of queries, the number of rows among which neighbours are searched
        (0: all), and their split.
    cosine_rows : int
        Rows per class in the cosine blocks; 0 for none.
    cosine_sample : {"random", "first"}
    probe_rows : int
        Rows on which probes of the concept are trained; 0 for no probes.
    audit_rows : int
        Rows on which certificates are issued again.
    ratios, per_cell
        Of the dialect study: shares of the target dialect with the positive label, and rows per cell.
    positive : str
        The label whose share the ratio is; if empty, the last label in sorted order.
    resamples : int
        The fewest resamples of the bootstrap; there are at least 200 for each test that is corrected with others.
    dev_to_train : float
        Share of the dev rows that is moved to the training rows: with WinoBias these are anti-stereotypical sentences,
        without which every occupation would have one gender in training.
    seed : int
    """

    experiment: Literal["bios", "dialect"]
    preset: Literal["paper", "released"]
    data: str
    source: str
    target: str
    text: str = "text"
    label: str = "label"
    concept: str = "concept"
    split: str = ""
    encoder: str = "minilm"
    site: str = "final"
    pooling: Literal["auto", "last", "cls", "mean"] = "auto"
    max_length: Count = 128
    components: Annotated[int, Field(ge=-1)] = -1
    components_from: Literal["train", "all"] = "train"
    methods: Several[str] = ("base", "leace", "mean", "mimic", "xian")
    fit_labels: Truth = "gold"
    train_labels: Truth = "predicted"
    test_labels: Truth = "predicted"
    fit_weights: Literal["rows", "balanced"] = "rows"
    concept_classifier: Literal["mlp", "linear"] = "mlp"
    early_stopping: bool = False
    head: Literal["converged", "saga"] = "converged"
    head_epochs: Count = 30
    tpr_classes: Literal["all", "predicted"] = "all"
    ridge: NonNegative = 1e-5
    alphas: Several[NonNegative] = (0.0, 0.001, 0.01, 0.05, 0.1)
    criteria: Several[Literal["demographic-parity", "equal-opportunity"]] = (
        "demographic-parity",
        "equal-opportunity",
    )
    post_groups: Several[Literal["predicted", "gold", "blind"]] = ("predicted", "gold")
    post_rows: Literal["dev", "all"] = "dev"
    post_calibration: Literal["none", "vector-scaling"] = "none"
    neighbour_counts: Several[Count] = (1, 2, 4, 8, 16, 32, 64, 128)
    neighbour_queries: Count = 1000
    neighbour_rows: Natural = 0
    neighbour_split: Literal["dev", "test"] = "dev"
    cosine_rows: Natural = 2000
    cosine_sample: Literal["random", "first"] = "random"
    probe_rows: Natural = 20_000
    audit_rows: Count = 5_000
    ratios: Several[Annotated[float, Field(gt=0, lt=1)]] = ()
    per_cell: Count = 44_000
    positive: str = ""
    resamples: Count = 1000
    dev_to_train: Annotated[float, Field(ge=0, lt=1)] = 0.0
    seed: Natural = 0

    @field_validator("methods")
    @classmethod
    def _require_known(cls, methods: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in methods if name not in ("base", "xian") and parse_method(name) is None]
        if unknown:
            raise ParameterError(
                f"there are no methods {unknown}; choose from base, xian, {', '.join(METHODS)}, or append a shrinkage "
                "to a method, as in mimic-oas, and a strength from 0 to 1, as in mimic-oas strength=0.5."
            )
        return tuple(dict.fromkeys(("base", *methods)))

    @model_validator(mode="after")
    def _require_consistent(self) -> "StudySpec":
        if self.source == self.target:
            raise ParameterError(f"source and target are both {self.source!r}; steering needs two concepts.")
        if self.experiment == "dialect" and not self.ratios:
            raise ParameterError("ratios is empty; a dialect study needs ratios, such as ratios = [0.5, 0.95].")
        return self


_BIOS_PAPER: Mapping[str, Any] = {"source": "male", "target": "female", "data": "bios"}
_BIOS_RELEASED: Mapping[str, Any] = {
    "data": "bios",
    "source": "female",
    "target": "male",
    "train_labels": "gold",
    "early_stopping": True,
    "head": "saga",
    "tpr_classes": "predicted",
    "neighbour_counts": (1, 4, 8, 16, 32, 64, 128),
    "neighbour_queries": 2000,
    "neighbour_rows": 30_000,
    "cosine_sample": "first",
}
_DIALECT_PAPER: Mapping[str, Any] = {
    "data": "dialect",
    "source": "SAE",
    "target": "AAE",
    "methods": ("base", "leace", "mean", "mimic"),
    "neighbour_counts": (),
    "cosine_rows": 0,
    "ratios": (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95),
}
_DIALECT_RELEASED: Mapping[str, Any] = {
    **_DIALECT_PAPER,
    "fit_labels": "predicted",
    "concept_classifier": "linear",
    "head": "saga",
    "head_epochs": 50,
    "components_from": "all",
}
PRESETS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("bios", "paper"): _BIOS_PAPER,
    ("bios", "released"): _BIOS_RELEASED,
    ("dialect", "paper"): _DIALECT_PAPER,
    ("dialect", "released"): _DIALECT_RELEASED,
}
"""What each preset changes in the defaults of `StudySpec`."""


def parse_method(name: str) -> tuple[str, str | None] | None:
    """Return the name of the estimator in `METHODS` and the shrinkage appended to it; None for an unknown name.

    A strength is ignored; see `strength_of`.
    """
    name, given, strength = name.partition(_STRENGTH)
    if given and not _is_share(strength):
        return None
    endings = [ending for ending in SHRINKAGES if name.endswith(f"-{ending}")]
    pairs = [(name.removesuffix(f"-{ending}"), ending) for ending in endings]
    # names of this package come first: a plugin called "mimic-oas" does not replace MiMiC with OAS
    known = [pair for pair in pairs if pair[0] in METHODS.own()]
    if _takes_rows(name) and not known:
        return name, None
    return next((pair for pair in known or pairs if _takes_rows(pair[0])), None)


def _takes_rows(name: str) -> bool:
    return name in METHODS and name not in METHODS.unlisted()


def strength_of(method: str) -> float:
    """Return the strength written behind a method, 1 if there is none."""
    return float(method.partition(_STRENGTH)[2] or 1.0)


def _is_share(text: str) -> bool:
    try:
        return 0.0 <= float(text) <= 1.0
    except ValueError:
        return False


def make_spec(experiment: str, preset: str = "paper", **differences: Any) -> StudySpec:
    """Return a preset with some options changed."""
    if (str(experiment), str(preset)) not in PRESETS:
        known = ", ".join(f"{e} {p}" for e, p in PRESETS)
        raise ParameterError(f"There is no experiment {experiment!r} with preset {preset!r}; there are {known}.")
    options = {"experiment": experiment, "preset": preset, **PRESETS[experiment, preset], **differences}
    return replace(StudySpec(**options), stated=tuple(differences))


def load_spec(path: str | os.PathLike[str], **differences: Any) -> StudySpec:
    """Read a study from a TOML file with ``experiment``, ``preset`` and the options that differ from the preset."""
    return make_spec(**{**read_options(path), **differences})


def spec_toml(spec: StudySpec) -> str:
    """Return a study as TOML: experiment, preset, and the options that were stated or differ from the preset."""
    return options_toml(spec.to_dict(), make_spec(spec.experiment, spec.preset).to_dict(), spec.stated)
