"""`CalibratedScorer`: a local score mapped to the scale of archived scores, frozen as one small file."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from repsurgery.errors import DataError, ModelError, ParameterError
from repsurgery.fields import check_fields
from repsurgery.files import Contents, built_from, digest_of, read_file, write_file
from repsurgery.scorers.archived import Agreement, compare, paired_scores
from repsurgery.scorers.base import SCORERS, ToxicityScorer, load_scorer

__all__ = ["KIND", "CalibratedScorer"]

KIND = "calibrated-scorer"
_LEAST = 20
"""The fewest texts with both scores for a fit and its held-out comparison."""
_REGISTERED_AS = {
    "alt-profanity-check": "linear",
    "toxic-comment-classifier": "bilstm",
    "detoxify-original": "detoxify",
}
"""Scorers that files name differently from `load_scorer`."""


@dataclass(frozen=True, slots=True)
class CalibratedScorer:
    """A scorer followed by an increasing, piecewise linear function: the isotonic regression of archived scores.

    The order of texts stays, apart from ties. The numbers become estimates of the archived scores, so that a threshold
    of .5 has the same meaning as there.

    Parameters
    ----------
    scorer : ToxicityScorer
    thresholds, values : (k,) increasing numbers
        The knots of the function and its values there; it is constant outside.
    held_out : Agreement
        The agreement with archived scores of texts that were not used in the fit.

    Attributes
    ----------
    name, version : str
        The inner scorer's name with "calibrated" before it, and its version.
    digest : str
        SHA-256 over the function and the inner digest.

    Guarantees
    ----------
    * The order of scores never changes (test_calibration_keeps_the_order).
    * Held-out texts are not used in the fit (test_what_is_held_out_takes_no_part).
    * A file that was altered, or belongs to another inner scorer, is refused (test_a_file_fits_its_own_scorer_only).
    """

    scorer: ToxicityScorer
    thresholds: NDArray[np.float64] = field(repr=False, compare=False)  # the digest compares both
    values: NDArray[np.float64] = field(repr=False, compare=False)
    held_out: Agreement
    name: str = field(init=False)
    version: str = field(init=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        arrays = {key: np.array(getattr(self, key), dtype=np.float64) for key in ("thresholds", "values")}
        _check_function(**arrays)
        for key, array in arrays.items():
            array.setflags(write=False)
            object.__setattr__(self, key, array)
        object.__setattr__(self, "name", f"calibrated {self.scorer.name}")
        object.__setattr__(self, "version", self.scorer.version)
        object.__setattr__(self, "digest", digest_of(arrays, {"scorer": self.scorer.digest}))

    @classmethod
    def fit(
        cls,
        scorer: ToxicityScorer,
        texts: Sequence[str],
        archived: Sequence[float | None],
        *,
        held_out: float = 0.2,
        seed: int = 0,
    ) -> "CalibratedScorer":
        """Fit on a part of the texts and compare on the rest.

        Parameters
        ----------
        scorer : ToxicityScorer
        texts : (n,) texts
        archived : (n,) numbers in [0, 1]
            None where a text has no archived score.
        held_out : float
            The share of texts that are not used in the fit, drawn by ``seed``.
        """
        if not 0 < held_out < 1:
            raise ParameterError(f"held_out={held_out!r} must lie strictly between 0 and 1.")
        scores, targets = paired_scores(scorer, texts, archived, caller="CalibratedScorer.fit")
        if len(scores) < _LEAST:
            raise DataError(f"CalibratedScorer.fit found {len(scores)} texts with both scores; it needs {_LEAST}.")
        order = np.random.default_rng(seed).permutation(len(scores))
        away, near = np.split(order, [max(1, round(held_out * len(order)))])
        if not len(near):
            raise DataError(f"held_out={held_out!r} leaves none of {len(scores)} texts for the fit. Hold out fewer.")
        isotonic = IsotonicRegression(y_min=0, y_max=1).fit(scores[near], targets[near])
        x, y = isotonic.X_thresholds_, isotonic.y_thresholds_
        return cls(scorer, x, y, compare(np.interp(scores[away], x, y), targets[away]))

    def __call__(self, texts: Sequence[str]) -> list[float | None]:
        """Return the calibrated score (n,) of each text; None where the inner scorer gives None."""
        scores = self.scorer(texts)
        known = np.interp([score for score in scores if score is not None], self.thresholds, self.values)
        values = iter(known.tolist())
        return [None if score is None else next(values) for score in scores]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the function, its held-out agreement and the identity of its scorer as one file with a digest."""
        inner = {"name": self.scorer.name, "version": self.scorer.version, "digest": self.scorer.digest}
        # JSON has no NaN
        held_out = {key: None if value != value else value for key, value in asdict(self.held_out).items()}
        arrays = {"thresholds": self.thresholds, "values": self.values}
        write_file(path, Contents(KIND, {"scorer": inner, "held_out": held_out}, arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str], scorer: ToxicityScorer) -> "CalibratedScorer":
        """Read a file back; ``scorer`` must be the one it was fitted to, by digest."""
        contents = read_file(path, kind=KIND)
        with built_from("a calibrated scorer", remedy="Fit again."):
            inner = contents.header["scorer"]
            held_out: dict[str, Any] = {
                key: np.nan if value is None else value for key, value in contents.header["held_out"].items()
            }
            check_fields(Agreement, held_out)
            wanted = f"{inner['name']} {inner['version']} of digest {inner['digest']}"
            calibrated = cls(scorer, contents.arrays["thresholds"], contents.arrays["values"], Agreement(**held_out))
        if inner["digest"] != scorer.digest:
            raise ModelError(
                f"{path} calibrates {wanted}, and got {scorer.name} {scorer.version} of digest {scorer.digest}. "
                "Pass the scorer it was fitted to, or fit again."
            )
        return calibrated


@SCORERS.register("calibrated")
def _calibrated(file: str) -> CalibratedScorer:
    with built_from("a calibrated scorer", remedy="Fit again."):
        inner = read_file(file, kind=KIND).header["scorer"]
        name, version = str(inner["name"]), str(inner["version"])
    name = _REGISTERED_AS.get(name, name)
    if name in SCORERS:
        return CalibratedScorer.load(file, load_scorer(name))
    if "#" in name and version != "local":
        return CalibratedScorer.load(file, load_scorer(f"hf:{name}"))
    raise ParameterError(
        f"{file} calibrates {name!r}, which is not a name of load_scorer. Build that scorer and call "
        "CalibratedScorer.load(file, scorer)."
    )


def _check_function(thresholds: NDArray[np.float64], values: NDArray[np.float64]) -> None:
    fits = thresholds.ndim == 1 and thresholds.shape == values.shape and len(thresholds) > 0
    if not fits or not np.isfinite(thresholds).all():
        raise DataError(
            f"A calibration needs as many values as thresholds, at least one, and got shapes {values.shape} and "
            f"{thresholds.shape}, or NaN among them."
        )
    rises = (np.diff(thresholds) > 0).all() and (np.diff(values) >= 0).all()
    if not rises or not (values[0] >= 0 and values[-1] <= 1):
        raise DataError("A calibration needs increasing thresholds, and values that never decrease, within 0 to 1.")
