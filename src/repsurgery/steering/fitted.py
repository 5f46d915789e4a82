"""`FittedSteering`: what an estimator has learned, and its use on rows; how it learns is in `base`."""

import copy
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from repsurgery.affine import AffineMap
from repsurgery.arrays import Label, Rows, estimator_rows
from repsurgery.cards import Card
from repsurgery.certificates import Certificate, ContinuousCertificate, Verification
from repsurgery.certificates.from_rows import certify
from repsurgery.certificates.verify import verify
from repsurgery.errors import SeveralMapsError
from repsurgery.gates import Gate
from repsurgery.moments import ClassMoments
from repsurgery.moments.shrinkage import FitRows
from repsurgery.origin import UNKNOWN, Origin
from repsurgery.price import Price
from repsurgery.steering.function import SteeringFunction
from repsurgery.steering.pretrained import Shareable
from repsurgery.steering.shown import ShownEstimator

__all__ = ["FittedSteering"]


class FittedSteering(Shareable, OneToOneFeatureMixin, TransformerMixin, ShownEstimator, ABC):
    """Abstract base of the estimators, after their fit: maps, gate and certificate, applied to rows."""

    # the concept travels by metadata routing wherever y is the task's label
    __metadata_request__transform: ClassVar = {"concept": True}
    __metadata_request__inverse_transform: ClassVar = {"concept": True}

    moments_: ClassMoments
    _steering: SteeringFunction | None
    _origin: Origin = UNKNOWN
    verification_: Verification

    @abstractmethod
    def _steering_for(self, moments: ClassMoments, rows: FitRows | None) -> SteeringFunction:
        """Return the certified steering function that follows from moments, and from rows where they are known."""

    def _enter(self, X: Any, *, reset: bool) -> Rows:
        return estimator_rows(self, X, reset=reset, remedy="Extract X at the site used for fitting")

    @property
    def steering_(self) -> SteeringFunction:
        """The frozen steering function: maps, gate and certificate."""
        check_is_fitted(self, "moments_")
        if self._steering is None:
            self._steering = self._steering_for(self.moments_, None).with_origin(self._origin)
        return self._steering

    @property
    def origin(self) -> Origin:
        """The model and site that the vectors came from, as far as `with_origin` or a file states them."""
        check_is_fitted(self, "moments_")
        return self._origin

    def with_origin(self, origin: Origin | None = None, /, **facts: Any) -> Self:
        """Return a copy of this fitted estimator with its origin; a later ``fit`` removes it.

        Parameters
        ----------
        origin : Origin or None
            For example ``lm.origin_of(model, site="layers.12")``; None keeps the present one.
        **facts
            Single fields of it, such as ``site="layers.12"``.
        """
        check_is_fitted(self, "moments_")
        placed = copy.copy(self)
        placed._origin = self._origin.revised(origin, **facts)
        placed._steering = None if self._steering is None else self._steering.with_origin(placed._origin)
        return placed

    def with_price(self, price: Price | None) -> Self:
        """Return a copy of this fitted estimator whose steering function holds ``price``; a later fit removes it.

        Guarantees
        ----------
        It is saved with the estimator (test_a_price_stays_with_an_estimator).
        """
        priced = copy.copy(self)
        priced._steering = self.steering_.with_price(price)
        return priced

    def _learned(self) -> Card | None:
        if not hasattr(self, "moments_"):
            return None
        moments = self.moments_._card()
        if self._steering is None:
            return replace(moments, verdict=f"{moments.title}. The map is computed when it is next used.")
        card = self._steering._card()
        return replace(card, facts=(("fitted on", moments.title.removeprefix("Moments of ")), *card.facts))

    @property
    def classes_(self) -> np.ndarray:
        """The concept labels, sorted."""
        check_is_fitted(self, "moments_")
        return np.array(self.moments_.labels)

    @property
    def maps_(self) -> dict[Label | None, AffineMap]:
        """The map of each steered class; under None the one map for all classes (LEACE)."""
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
    def certificate_(self) -> Any:
        """The `Certificate` on the fitting moments; of a continuous concept a `ContinuousCertificate`."""
        certificate = self.steering_.certificate
        assert isinstance(certificate, Certificate | ContinuousCertificate)
        return certificate

    def transform(self, X: Any, *, concept: Any = None) -> Rows:
        """Return steered rows (n, d); the ``concept`` labels (n,) decide which, or the gate where there are none."""
        check_is_fitted(self, "moments_")
        return self.steering_(self._enter(X, reset=False), concept)

    def inverse_transform(self, X: Any, *, concept: Any = None) -> Rows:
        """Undo `transform`, where the maps have inverses; ``concept`` are the labels by which rows were steered."""
        check_is_fitted(self, "moments_")
        return self.steering_.inverse(self._enter(X, reset=False), concept)

    def certify(self, X: Any, z: Any = None, *, groups: Any = None) -> Any:
        """Re-issue the certificate on unweighted rows ``X`` (n, d) with labels ``z`` (n,) and ``groups`` (n,).

        It includes what only rows can show: the gate, EBBN without self pairs, a converged logistic probe.
        """
        check_is_fitted(self, "moments_")
        return certify(self.steering_, self._enter(X, reset=False), z, groups=groups)

    def verify(self, X: Any = None, z: Any = None, *, groups: Any = None) -> Self:
        """Raise `CertificateError` where bytes, a cast or the unweighted rows ``X`` contradict the claims.

        Otherwise ``verification_.verdict`` says whether the rows support them or are too few; see `Verification`.
        """
        check_is_fitted(self, "moments_")
        rows = None if X is None else self._enter(X, reset=False)
        self.verification_ = verify(self.steering_, rows, z, groups=groups)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "moments_")
