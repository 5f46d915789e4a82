"""What every estimator shares: statistics in, a certified steering function out."""

import copy
import sys
import warnings
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from repsurgery.affine import AffineMap
from repsurgery.arrays import Label, Rows, as_rows, check_labels, check_rows, check_weights
from repsurgery.certificates import Certificate, Verification
from repsurgery.certificates.certificate import Claim, Population
from repsurgery.certificates.from_moments import Method, Solution, issue
from repsurgery.certificates.from_rows import certify
from repsurgery.certificates.verify import verify
from repsurgery.errors import (
    ConceptWarning,
    GainWarning,
    InfeasibleWarning,
    LabelError,
    ParameterError,
    RowsNeededError,
    SeveralMapsError,
    ShapeError,
)
from repsurgery.gates import AlwaysGate, Gate, LabelsGate
from repsurgery.gates.from_moments import lda, nearest_mean, qda
from repsurgery.gates.from_rows import from_classifier, logistic, mlp
from repsurgery.moments import ClassMoments
from repsurgery.moments.moments import Precision
from repsurgery.origin import UNKNOWN, Origin
from repsurgery.steering.function import EVERYBODY, SteeringFunction
from repsurgery.steering.shrink import SeenRows, check_shrinkage, shrink_classes, shrunk_covariance

__all__ = ["BaseSteering", "GateName"]

GateName = Literal["nearest-mean", "always", "labels", "logistic", "mlp", "lda", "qda"]
GAIN_LIMIT = 100.0
COMPOSITES = ("sklearn.pipeline", "sklearn.compose", "sklearn.model_selection")
"""Modules whose estimators fit others, and route the concept to them where routing is on."""


class BaseSteering(OneToOneFeatureMixin, TransformerMixin, BaseEstimator, ABC):
    """Abstract base of the estimators; each states its own ``claims`` and how to solve for its maps."""

    # the concept travels by metadata routing wherever y is the task's label
    __metadata_request__fit: ClassVar = {"concept": True}
    __metadata_request__partial_fit: ClassVar = {"concept": True}
    __metadata_request__transform: ClassVar = {"concept": True}
    __metadata_request__inverse_transform: ClassVar = {"concept": True}

    claims: ClassVar[tuple[Claim, ...]]
    population: ClassVar[Population]

    # defaults for estimators that do not take these parameters
    shrinkage: Any = "none"
    ridge: Any = 1e-5
    gate: Any = "always"
    precision: Precision = "float64"
    moments_: ClassMoments
    _steering: SteeringFunction | None
    _origin: Origin = UNKNOWN
    verification_: Verification
    random_state: Any = None

    @abstractmethod
    def _solve(self, moments: ClassMoments, seen: SeenRows | None) -> tuple[Method, dict[Label | None, Solution]]:
        """Return what is claimed, and one solution per steered class."""

    # -- fitting ---------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, concept: Any = None, sample_weight: Any = None) -> Self:
        """Fit on rows ``X`` (n, d) and their concept labels (n,).

        Parameters
        ----------
        X : (n, d) array-like
            Never modified; float64 arithmetic whatever its dtype.
        y : (n,) labels, or None
            The concept, unless ``concept`` is given; then ``y`` is ignored (in a pipeline it is the task's label).
        concept : (n,) labels, or None
        sample_weight : (n,) array-like, or None
            A weight of 2 counts a row twice.
        """
        X = self._enter(X, reset=True)
        labels, codes, w = self._concept(X, y, concept, sample_weight)
        moments = ClassMoments.of_codes(X, labels, codes, w, self.precision)
        return self._adopt(moments, SeenRows(X, codes, labels, w))

    def partial_fit(self, X: Any, y: Any = None, *, concept: Any = None, sample_weight: Any = None) -> Self:
        """Add rows to the statistics; the maps are solved for when they are next asked for."""
        first = not hasattr(self, "moments_")
        X = self._enter(X, reset=first)
        labels, codes, w = self._concept(X, y, concept, sample_weight)
        moments = ClassMoments.of_codes(X, labels, codes, w, self.precision)
        self._require_no_rows()
        self.moments_ = moments if first else self.moments_ + moments
        self._steering = None
        self._origin = UNKNOWN if first else self._origin.revised(data=None)
        return self

    @classmethod
    def from_moments(cls, moments: ClassMoments, **params: Any) -> Self:
        """Return an estimator with these ``params``, fitted from ``moments`` alone."""
        return cls(**params).fit_moments(moments)

    def fit_moments(self, moments: ClassMoments) -> Self:
        """Fit from statistics gathered elsewhere: streamed, merged, loaded from a file."""
        if not isinstance(moments, ClassMoments):
            raise ParameterError(f"fit_moments takes ClassMoments, not {type(moments).__name__}; see ClassMoments.of.")
        self._require_no_rows()
        self.n_features_in_ = moments.dim
        return self._adopt(moments, None)

    def _adopt(self, moments: ClassMoments, seen: SeenRows | None) -> Self:
        steering = self._steering_for(moments, seen)
        self.moments_ = moments
        self._steering = steering
        self._origin = UNKNOWN
        return self

    def _enter(self, X: Any, *, reset: bool) -> Rows:
        X = X if hasattr(X, "iloc") else as_rows(X)
        rows = check_rows(X, caller=type(self).__name__)
        try:
            validate_data(self, X, reset=reset, skip_check_array=True)
        except ValueError as error:
            raise ShapeError(f"{error} Extract X at the site used for fitting, or fit again.") from error
        return rows

    def _concept(self, X: Rows, y: Any, concept: Any, sample_weight: Any) -> tuple[list[Label], Any, Any]:
        name = type(self).__name__
        if concept is None and y is not None and get_config()["enable_metadata_routing"] and _called_by_composite():
            warnings.warn(
                f"{name} was given no concept by the pipeline or search that fits it, and takes y for it; y is the "
                "task's label there. Pass concept=z to the outermost fit, also where y is the concept.",
                ConceptWarning,
                stacklevel=4,
            )
        labels, codes = check_labels(y if concept is None else concept, len(X), caller=name)
        return labels, codes, check_weights(sample_weight, len(X), caller=name)

    def _require_no_rows(self) -> None:
        if isinstance(self.gate, str) and self.gate in ("logistic", "mlp"):
            raise RowsNeededError(
                f"gate={self.gate!r} is trained on rows, and moments hold none. Use fit(X, z), or a gate that reads "
                "moments: 'nearest-mean', 'lda', 'qda', 'always', 'labels', or a fitted gate."
            )
        if self.shrinkage == "ledoit-wolf":
            raise RowsNeededError(
                "shrinkage='ledoit-wolf' needs rows: moments do not hold fourth-order sums. Use fit(X, z), or "
                "shrinkage='oas', 'ridge' or 'relative-ridge', which read moments."
            )

    def _steering_for(self, moments: ClassMoments, seen: SeenRows | None) -> SteeringFunction:
        if len(moments) < 2:
            raise LabelError(
                f"{type(self).__name__} got labels of 1 class only ({moments.labels}); "
                "a concept needs at least two. Check the labels, or add rows of another class."
            )
        check_shrinkage(self.shrinkage, self.ridge)
        for m in moments.values():
            m.require_scale()
        method, solutions = self._solve(moments, seen)
        gate = self._make_gate(moments, seen)
        steering = SteeringFunction({k: s.map for k, s in solutions.items()}, gate, tuple(moments.labels))
        by_class = {c: solutions[c if c in solutions else EVERYBODY] for c in moments if {c, EVERYBODY} & {*solutions}}
        certificate = issue(method, moments, by_class)
        _warn(certificate)
        return steering.sealed(certificate)

    def _make_gate(self, moments: ClassMoments, seen: SeenRows | None) -> Gate:
        classes = tuple(moments.labels)
        if not isinstance(self.gate, str):
            return from_classifier(self.gate, classes, moments.dim)
        if self.gate not in get_args(GateName):
            raise ParameterError(f"gate is {self.gate!r}; it must be one of {list(get_args(GateName))}, or fitted.")
        if self.gate in ("logistic", "mlp") and seen is None:
            self._require_no_rows()
        match self.gate:
            case "nearest-mean":
                return nearest_mean(moments)
            case "always":
                return AlwaysGate()
            case "labels":
                return LabelsGate(classes)
            case "logistic":
                assert seen is not None
                return logistic(seen.X, seen.codes, classes, seen.weights)
            case "mlp":
                assert seen is not None
                return mlp(seen.X, seen.codes, classes, seen.weights, self.random_state)
        shrinkages = shrink_classes(self.shrinkage, self.ridge, moments, seen)
        rule = lda if self.gate == "lda" else qda
        return rule(moments, lambda label: shrunk_covariance(moments[label], shrinkages[label]))

    # -- what was learned ------------------------------------------------------------------------------------------

    @property
    def steering_(self) -> SteeringFunction:
        """The frozen steering function: maps, gate and certificate."""
        check_is_fitted(self, "moments_")
        if self._steering is None:
            self._steering = self._steering_for(self.moments_, None).with_origin(self._origin)
        return self._steering

    @property
    def origin(self) -> Origin:
        """Model and site that the vectors came from, as far as `with_origin` or a file has told."""
        check_is_fitted(self, "moments_")
        return self._origin

    def with_origin(self, origin: Origin | None = None, /, **facts: Any) -> Self:
        """Return a copy of this fitted estimator that knows its origin; a later ``fit`` forgets it.

        Parameters
        ----------
        origin : Origin or None
            For example ``lm.origin_of(model, site="layers.12")``; None keeps the present one.
        **facts
            Single fields of it, such as ``site="layers.12"``.
        """
        check_is_fitted(self, "moments_")
        known = copy.copy(self)
        known._origin = self._origin.revised(origin, **facts)
        known._steering = None if self._steering is None else self._steering.with_origin(known._origin)
        return known

    @property
    def classes_(self) -> np.ndarray:
        """The concept labels, sorted."""
        check_is_fitted(self, "moments_")
        return np.array(self.moments_.labels)

    @property
    def maps_(self) -> dict[Label | None, AffineMap]:
        """The map of each steered class; under None the one that serves them all (LEACE)."""
        return dict(self.steering_.maps)

    @property
    def map_(self) -> AffineMap:
        """The map, where there is exactly one."""
        maps = self.maps_
        if len(maps) != 1:
            raise SeveralMapsError(
                f"There are {len(maps)} maps, one per source class ({list(maps)}). Choose one with maps_[label]."
            )
        return next(iter(maps.values()))

    @property
    def gate_(self) -> Gate:
        """The fitted gate."""
        return self.steering_.gate

    @property
    def certificate_(self) -> Certificate:
        """The certificate on the fitting moments."""
        certificate = self.steering_.certificate
        assert certificate is not None
        return certificate

    # -- applying --------------------------------------------------------------------------------------------------

    def transform(self, X: Any, *, concept: Any = None) -> Rows:
        """Return steered rows (n, d): by the gate, or by the given ``concept`` labels (n,)."""
        check_is_fitted(self, "moments_")
        return self.steering_(self._enter(X, reset=False), concept)

    def fit_transform(self, X: Any, y: Any = None, *, concept: Any = None, sample_weight: Any = None) -> Rows:
        """Fit, then steer the same rows: by ``concept`` where it is given, else by the gate."""
        self.fit(X, y, concept=concept, sample_weight=sample_weight)
        return self.transform(X, concept=concept)

    def inverse_transform(self, X: Any, *, concept: Any = None) -> Rows:
        """Undo `transform`, where the maps have inverses; ``concept`` are the labels by which rows were steered."""
        check_is_fitted(self, "moments_")
        return self.steering_.inverse(self._enter(X, reset=False), concept)

    def certify(self, X: Any, z: Any = None) -> Certificate:
        """Re-issue the certificate on unweighted rows ``X`` (n, d) with labels ``z`` (n,).

        What only rows can tell is included: the gate, EBBN without self pairs, a converged logistic probe.
        """
        check_is_fitted(self, "moments_")
        return certify(self.steering_, self._enter(X, reset=False), z)

    def verify(self, X: Any = None, z: Any = None) -> Self:
        """Raise `CertificateError` where bytes, a cast or the given unweighted rows contradict the claims.

        Whether the rows support them, or are too few to tell, is then ``verification_.verdict``; see `Verification`.
        """
        check_is_fitted(self, "moments_")
        self.verification_ = verify(self.steering_, None if X is None else self._enter(X, reset=False), z)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "moments_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _called_by_composite() -> bool:
    """Whether a pipeline, column transformer or search of scikit-learn is fitting, and not the user."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__", "").startswith(COMPOSITES):
            return True
    return False


def _warn(certificate: Certificate) -> None:
    if not certificate.feasible:
        warnings.warn(
            f"{certificate.method}: no affine map reaches the target covariance: the source spans too few directions "
            f"(see certificate_.by_source). The closest one was taken; residual {certificate.covariance_gap:.2g},"
            f" bound {certificate.residual_bound:.2g}. Add source rows, or choose a shrinkage.",
            InfeasibleWarning,
            stacklevel=5,
        )
    if certificate.gain > GAIN_LIMIT:
        warnings.warn(
            f"{certificate.method}: the map stretches some direction {certificate.gain:.3g}-fold, which new data will "
            "feel. Add source rows, or choose shrinkage='oas'.",
            GainWarning,
            stacklevel=5,
        )
