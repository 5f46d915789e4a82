"""The record of one fairness study: what was run on which data, and every number that came out."""

import base64
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.studies.common.estimate import Estimate

__all__ = ["CosineThumbnail", "MethodResult", "Setting", "StudyRecord"]


@dataclass(frozen=True, slots=True)
class CosineThumbnail:
    """Cosine similarities of a seeded sample, ordered by class, small enough to be kept.

    Attributes
    ----------
    within, between : float
        Mean similarity of two different rows of one class, and of rows of two classes, over the whole sample.
    rows : int
        The picture shows this many rows, half of them of each class.
    values : str
        The (rows, rows) similarities in steps of 1/127, base64.
    """

    within: float
    between: float
    rows: int
    values: str

    def __post_init__(self) -> None:
        if len(base64.b64decode(self.values)) != self.rows**2:
            raise ValueError(f"a cosine picture that is not {self.rows} by {self.rows}")

    @classmethod
    def of(cls, similarities: NDArray[Any], within: float, between: float) -> "CosineThumbnail":
        """Keep a square matrix of cosines."""
        steps = np.rint(np.clip(similarities, -1, 1) * 127).astype(np.int8)
        return cls(float(within), float(between), len(steps), base64.b64encode(steps.tobytes()).decode())

    def matrix(self) -> NDArray[np.float64]:
        """Return the (rows, rows) similarities."""
        steps = np.frombuffer(base64.b64decode(self.values), dtype=np.int8)
        return steps.reshape(self.rows, self.rows).astype(np.float64) / 127


@dataclass(frozen=True, slots=True)
class MethodResult:
    """What one method did to one setting.

    Attributes
    ----------
    method : str
        "base", a name of `repsurgery.workflows.fit.METHODS`, or "xian" with its choices.
    measures : mapping of str to Estimate
        "test.accuracy", "test.tpr_gap_rms" (over all classes with both groups), "test.tpr_gap_noise" (what sampling
        alone would show), "test.tpr_gap_rms_predicted" (over classes predicted correctly at least once),
        "test.demographic_parity", "test.equalized_odds", the same for
        "dev", "ebbn" and "ebbn_u" between source and target on the dev rows, "probe.linear" and "probe.mlp": how well
        fresh probes read the concept from held-out rows.
    differences : mapping of str to Estimate
        Measure minus that of the base, on the same resamples.
    gaps : mapping of class to float or None
        The TPR gap of each class on the test rows; None where a group is absent.
    neighbours : mapping of k to Estimate
        Share of the k nearest rows of the dev split with the query's concept.
    cosine : CosineThumbnail or None
    certificate, held_out : mapping or None
        The certificate on the fitting rows and re-issued on dev rows (`Certificate.to_dict`).
    supported : bool or None
        Whether the held-out rows support the method's claims; None where they cannot tell or were not asked.
    verdict : str or None
        "supported", "contradicted" or "cannot tell" (`Verification`); None in records from before it was kept.
    facts : mapping
        What else is worth knowing: iterations, loss, alpha, objective.
    """

    method: str
    measures: Mapping[str, Estimate] = field(default_factory=dict)
    differences: Mapping[str, Estimate] = field(default_factory=dict)
    gaps: Mapping[str, float | None] = field(default_factory=dict)
    neighbours: Mapping[str, Estimate] = field(default_factory=dict)
    cosine: CosineThumbnail | None = None
    certificate: Mapping[str, Any] | None = None
    held_out: Mapping[str, Any] | None = None
    supported: bool | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    verdict: str | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """One training set and every method on it.

    Attributes
    ----------
    ratio : float or None
        Share of the target dialect with positive sentiment (dialect study); None elsewhere.
    sizes : mapping of split to rows
    concept : mapping of str to float
        Accuracy of the concept classifier and share of the majority, by split: "train.accuracy", "dev.majority", ...;
        its "epochs", and 1 under "settled" where it stopped by itself.
    chance : float
        Share of same-concept neighbours that an uninformative representation would show.
    methods : tuple of MethodResult
        The base first.
    """

    ratio: float | None
    sizes: Mapping[str, int]
    concept: Mapping[str, float]
    chance: float
    methods: tuple[MethodResult, ...]

    def method(self, name: str) -> MethodResult | None:
        """Return the result of a method, None where it was not run."""
        return next((m for m in self.methods if m.method == name), None)


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """Everything a report of a fairness study needs, and nothing that names a user, a host or a folder.

    Attributes
    ----------
    experiment : {"bios", "dialect"}
    created : str
        Date, ISO 8601.
    spec : mapping
        Every option of the run.
    data : mapping
        name, source, licence, digest, counts (concept by class), cautions.
    encoder : mapping
        name, site, pooling, dim, digest of the rows.
    environment, seconds : mapping
    settings : tuple of Setting
    notes : tuple of str
        What a reader must know to judge the numbers.
    """

    experiment: str
    created: str
    spec: Mapping[str, Any]
    data: Mapping[str, Any]
    encoder: Mapping[str, Any]
    environment: Mapping[str, str]
    seconds: Mapping[str, float]
    settings: tuple[Setting, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "StudyRecord":
        """Rebuild a record from `to_dict`."""
        settings = tuple(_setting(one) for one in plain["settings"])
        if not settings or not all(setting.methods for setting in settings):
            raise ValueError("no settings, or one without methods")
        return cls(**{**plain, "settings": settings, "notes": tuple(plain["notes"])})


def _setting(plain: Mapping[str, Any]) -> Setting:
    return Setting(**{**plain, "methods": tuple(_method(one) for one in plain["methods"])})


def _method(plain: Mapping[str, Any]) -> MethodResult:
    estimates = {
        name: {key: Estimate(**value) for key, value in plain[name].items()}
        for name in ("measures", "differences", "neighbours")
    }
    cosine = None if plain["cosine"] is None else CosineThumbnail(**plain["cosine"])
    return MethodResult(**{**plain, **estimates, "cosine": cosine})
