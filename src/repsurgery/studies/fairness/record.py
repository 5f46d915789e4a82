"""The record of one fairness study: its data, its settings, and every number that was measured."""

import base64
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.errors import RecordError
from repsurgery.studies.common.checked import Checked, Field, Several, checked, model_validator
from repsurgery.studies.common.estimate import Estimate

__all__ = ["CosineThumbnail", "MethodResult", "Setting", "StudyRecord", "is_sweep"]


def is_sweep(method: str) -> bool:
    """Return whether a method of a record is one point of the post-processing's sweep over alpha."""
    return method.startswith("xian")


@checked(RecordError, finite=False)
class CosineThumbnail(Checked):
    """Cosine similarities of a seeded sample, ordered by class, small enough to be stored in a record.

    Attributes
    ----------
    within, between : float
        Mean similarity of two different rows of one class, and of rows of two classes, over the whole sample.
    rows : int
        Number of rows in the picture, half of them from each class.
    values : str
        The (rows, rows) similarities in steps of 1/127, base64.
    """

    within: float
    between: float
    rows: int
    values: str

    @model_validator(mode="after")
    def _require_square(self) -> "CosineThumbnail":
        if len(base64.b64decode(self.values)) != self.rows**2:
            raise RecordError(f"values must be {self.rows} by {self.rows} similarities.")
        return self

    @classmethod
    def of(cls, similarities: NDArray[Any], within: float, between: float) -> "CosineThumbnail":
        """Return a square matrix of cosines as a thumbnail."""
        steps = np.rint(np.clip(similarities, -1, 1) * 127).astype(np.int8)
        return cls(float(within), float(between), len(steps), base64.b64encode(steps.tobytes()).decode())

    def matrix(self) -> NDArray[np.float64]:
        """Return the (rows, rows) similarities."""
        steps = np.frombuffer(base64.b64decode(self.values), dtype=np.int8)
        return steps.reshape(self.rows, self.rows).astype(np.float64) / 127


@checked(RecordError, finite=False)
class MethodResult(Checked):
    """The results of one method on one setting.

    Attributes
    ----------
    method : str
        "base", a name of `repsurgery.steering.base.METHODS`, or "xian" with its choices.
    measures : mapping of str to Estimate
        "test.accuracy", "test.tpr_gap_rms" (over all classes with both groups), "test.tpr_gap_noise" (expected from
        sampling alone), "test.tpr_gap_rms_predicted" (over classes predicted correctly at least once),
        "test.demographic_parity", "test.equalized_odds", the same for "dev", "ebbn" and "ebbn_u" between source and
        target on the dev rows, "probe.linear" and "probe.mlp": the accuracy of new probes for the concept on held-out
        rows.
    differences : mapping of str to Estimate
        Each measure minus that of the base, on the same resamples.
    gaps : mapping of class to float or None
        The TPR gap of each class on the test rows; None where a group is absent.
    neighbours : mapping of k to Estimate
        Share of the k nearest rows of the dev split that have the query's concept.
    cosine : CosineThumbnail or None
    certificate, held_out : mapping or None
        The certificate on the fitting rows, and the one issued again on dev rows (`Certificate.to_dict`).
    supported : bool or None
        Whether the held-out rows support the method's claims; None if they are too few or there are none.
    verdict : str or None
        "supported", "contradicted" or "cannot tell" (`Verification`); None in older records.
    facts : mapping
        Further values: iterations, loss, alpha, objective.
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


@checked(RecordError, finite=False)
class Setting(Checked):
    """One training set and the results of every method on it.

    Attributes
    ----------
    ratio : float or None
        Share of the target dialect with positive sentiment (dialect study); None elsewhere.
    sizes : mapping of split to rows
    concept : mapping of str to float
        Accuracy of the concept classifier and share of the majority, by split: "train.accuracy", "dev.majority", ...;
        its "epochs", and 1 under "settled" if it converged.
    chance : float
        Share of same-concept neighbours in an uninformative representation.
    methods : tuple of MethodResult
        The base first.
    """

    ratio: float | None
    sizes: Mapping[str, int]
    concept: Mapping[str, int | float]
    chance: float
    methods: Annotated[Several[MethodResult], Field(min_length=1)]

    def method(self, name: str) -> MethodResult | None:
        """Return the result of a method, None if it was not run."""
        return next((m for m in self.methods if m.method == name), None)


@checked(RecordError, finite=False)
class StudyRecord(Checked):
    """Everything that a report of a fairness study needs; no name of a user, a host or a folder.

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
    settings: Annotated[Several[Setting], Field(min_length=1)]
    notes: Several[str] = ()

    @property
    def model_name(self) -> str:
        """The name of the encoder."""
        return str(self.encoder["name"])
