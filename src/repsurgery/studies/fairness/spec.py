"""`StudySpec`: every choice of a fairness study, by name; a run is a preset and its differences."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from repsurgery.errors import ParameterError
from repsurgery.moments.shrinkage import SHRINKAGES
from repsurgery.steering.base import METHODS, BaseSteering
from repsurgery.studies.common.options import chosen, options_toml, read_options, require_least, require_types

__all__ = ["PRESETS", "StudySpec", "load_spec", "make_spec", "spec_toml"]

Truth = Literal["gold", "predicted"]


@dataclass(frozen=True, slots=True)
class StudySpec:
    """The choices of one study; where the paper's text and its released code differ, each is a choice here.

    Attributes
    ----------
    experiment : {"bios", "dialect"}
        One training set as the data come, or one per ratio.
    preset : {"paper", "released"}
        Where the other defaults come from: the paper's text, or the code published with it.
    data : str
        A name of `repsurgery.studies.fairness.data.SOURCES`, or a table, or a folder of tables.
    text, label, concept, split : str
        Columns of a table; an empty ``label`` means a study without task, an empty ``split`` a random split.
    encoder : str
        "minilm", "smollm2-135m", "bert", "gpt2", "llama2", a folder or a hub id.
    site, pooling, max_length
        See `lm.extract`; pooling "auto" is that of the encoder's family.
    components : int
        Principal components kept; 0 keeps the encoder's own dimensions, -1 takes the encoder's customary number.
    components_from : {"train", "all"}
        Rows that choose the components.
    methods : tuple of str
        "xian" and names of `METHODS`, also with a shrinkage appended ("mimic-oas"); "base" always comes first.
    source, target : str
        The steered concept, and the one it is steered to.
    fit_labels, train_labels, test_labels : {"gold", "predicted"}
        Whose concept decides: which rows the maps are fitted on, which training rows are steered, which dev and test
        rows are.
    fit_weights : {"rows", "balanced"}
        Whether the maps are fitted on the rows as they are, or on rows weighted so that both concepts have the same mix
        of task labels: otherwise the difference of the concepts' moments holds part of the task's, and matching it
        overcorrects.
    concept_classifier : {"mlp", "linear"}
    early_stopping : bool
        Of the MLP.
    head : {"converged", "saga"}
        The task's logistic regression: at its optimum, or after ``head_epochs`` of the released solver.
    tpr_classes : {"all", "predicted"}
        Which classes the table's RMS gap averages over: all with both groups, or those predicted correctly at least
        once by the method's classifier. Both are in the record.
    ridge : float
        Added to both covariances of MiMiC.
    alphas, criteria, post_groups : tuples
        Of the post-processing: each combination is a row.
    neighbour_counts, neighbour_queries, neighbour_rows, neighbour_split
        The k, how many rows ask, among how many first rows (0: all), of which split.
    cosine_rows : int
        Rows per class in the cosine blocks; 0 leaves them out.
    cosine_sample : {"random", "first"}
    probe_rows : int
        Rows that probes of the concept are trained on; 0 leaves the probes out.
    audit_rows : int
        Rows on which certificates are re-issued.
    ratios, per_cell
        Of the dialect study: shares of the target dialect with the positive label, and rows per cell.
    positive : str
        The label whose share the ratio is; empty: the last one, sorted.
    resamples : int
        Of the bootstrap.
    dev_to_train : float
        Share of the dev rows that join the training rows: with WinoBias these are anti-stereotyped sentences, without
        which every occupation would have one gender in training.
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
    max_length: int = 128
    components: int = -1
    components_from: Literal["train", "all"] = "train"
    methods: tuple[str, ...] = ("base", "leace", "mean", "mimic", "xian")
    fit_labels: Truth = "gold"
    train_labels: Truth = "predicted"
    test_labels: Truth = "predicted"
    fit_weights: Literal["rows", "balanced"] = "rows"
    concept_classifier: Literal["mlp", "linear"] = "mlp"
    early_stopping: bool = False
    head: Literal["converged", "saga"] = "converged"
    head_epochs: int = 30
    tpr_classes: Literal["all", "predicted"] = "all"
    ridge: float = 1e-5
    alphas: tuple[float, ...] = (0.0, 0.001, 0.01, 0.05, 0.1)
    criteria: tuple[Literal["demographic-parity", "equal-opportunity"], ...] = (
        "demographic-parity",
        "equal-opportunity",
    )
    post_groups: tuple[Truth, ...] = ("predicted", "gold")
    neighbour_counts: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)
    neighbour_queries: int = 1000
    neighbour_rows: int = 0
    neighbour_split: Literal["dev", "test"] = "dev"
    cosine_rows: int = 2000
    cosine_sample: Literal["random", "first"] = "random"
    probe_rows: int = 20_000
    audit_rows: int = 5_000
    ratios: tuple[float, ...] = ()
    per_cell: int = 44_000
    positive: str = ""
    resamples: int = 1000
    dev_to_train: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        require_types(self)
        unknown = [name for name in self.methods if name not in ("base", "xian") and parse_method(name) is None]
        if unknown:
            raise ParameterError(
                f"There are no methods {unknown}; choose from base, xian, {', '.join(METHODS)}, or append a shrinkage "
                "to a method, as in mimic-oas."
            )
        object.__setattr__(self, "methods", tuple(dict.fromkeys(("base", *self.methods))))
        if self.source == self.target:
            raise ParameterError(f"source and target are both {self.source!r}; steering needs two concepts.")
        require_least(self, _LEAST)
        if not 0 <= self.dev_to_train < 1:
            raise ParameterError(f"dev_to_train is {self.dev_to_train}; it must be a share below 1.")
        if any(not 0 < ratio < 1 for ratio in self.ratios):
            raise ParameterError(f"ratios are {list(self.ratios)}; each must lie strictly between 0 and 1.")
        if self.experiment == "dialect" and not self.ratios:
            raise ParameterError("A dialect study needs ratios, such as ratios = [0.5, 0.95].")

    def to_dict(self) -> dict[str, Any]:
        """Return every choice as plain JSON-ready values."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}


_LEAST: Mapping[float, tuple[str, ...]] = {
    1: ("max_length", "head_epochs", "neighbour_queries", "neighbour_counts", "per_cell", "resamples", "audit_rows"),
    0: ("neighbour_rows", "cosine_rows", "probe_rows", "ridge", "alphas", "seed"),
    -1: ("components",),
}

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
"""What each preset sets beside the defaults of `StudySpec`."""


def parse_method(name: str) -> tuple[type[BaseSteering], str | None] | None:
    """Return the estimator of a method, and the shrinkage appended to its name; None for an unknown name."""
    if name in METHODS:
        return METHODS[name], None
    endings = [ending for ending in SHRINKAGES if name.endswith(f"-{ending}")]
    pairs = [(name.removesuffix(f"-{ending}"), ending) for ending in endings]
    return next(((METHODS[method], ending) for method, ending in pairs if method in METHODS), None)


def make_spec(experiment: str, preset: str = "paper", **differences: Any) -> StudySpec:
    """Return a preset with ``differences``; lists stand for tuples."""
    if (experiment, preset) not in PRESETS:
        known = ", ".join(f"{e} {p}" for e, p in PRESETS)
        raise ParameterError(f"There is no experiment {experiment!r} with preset {preset!r}; there are {known}.")
    values = {"experiment": experiment, "preset": preset, **PRESETS[experiment, preset], **differences}
    return StudySpec(**chosen(StudySpec, values))


def load_spec(path: str | os.PathLike[str], **differences: Any) -> StudySpec:
    """Read a study from a TOML file: ``experiment``, ``preset`` and what differs from it."""
    return make_spec(**{**read_options(path), **differences})


def spec_toml(spec: StudySpec) -> str:
    """Return the TOML of a study: experiment, preset, and what differs from it."""
    return options_toml(spec.to_dict(), make_spec(spec.experiment, spec.preset).to_dict())
