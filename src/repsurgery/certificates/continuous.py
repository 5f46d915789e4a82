"""`ContinuousCertificate`: what the erasure of a continuous concept does, measured column by column."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from repsurgery.affine import AffineMap
from repsurgery.arrays import Vector
from repsurgery.cards import Card, Shown
from repsurgery.certificates.certificate import MeasuredOn
from repsurgery.certificates.from_moments import Method, pushforward
from repsurgery.certificates.shown import continuous_card
from repsurgery.errors import DataError
from repsurgery.fields import check_fields
from repsurgery.moments import CrossMoments, Moments
from repsurgery.moments.pooled import whitening

__all__ = ["ContinuousCertificate", "HeldOutColumns", "issue_continuous"]

_BY_COLUMN = ("covariance_before", "covariance_after", "r2_before", "r2_after")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutColumns:
    """What erasure leaves of each column on rows that the map was not fitted on; sampling error is taken off.

    Attributes
    ----------
    covariance_after, r2_after : tuple of float
        As in `ContinuousCertificate`.
    covariance_before, r2_before : tuple of float
        The same of the same rows before erasure.
    folds : int
    """

    covariance_before: tuple[float, ...]
    covariance_after: tuple[float, ...]
    r2_before: tuple[float, ...]
    r2_after: tuple[float, ...]
    folds: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready values."""
        return {"folds": self.folds, **{name: list(getattr(self, name)) for name in _BY_COLUMN}}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "HeldOutColumns":
        """Rebuild the figures from `to_dict`; a value of another type or out of range raises a `DataError`."""
        values = {**plain, **{name: tuple(plain[name]) for name in _BY_COLUMN}}
        check_fields(cls, values)
        numbers = [value for name in _BY_COLUMN for value in values[name]]
        if not all(math.isfinite(value) and value >= 0 for value in numbers) or values["folds"] < 2:
            raise DataError("A figure of the rows left out cannot have been measured. Fit again.")
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousCertificate(Shown):
    """The measured effect of erasing a continuous concept z of k columns from vectors h.

    Like every certificate it is a measurement and a digest, not a proof. With no covariance between s(h) and z, no
    affine probe predicts z better in squared loss than its mean does.

    Attributes
    ----------
    covariance_before, covariance_after : tuple of float
        ‖Cov(h, z_j)‖ / sd(z_j) of each column, before and after erasure.
    r2_before, r2_after : tuple of float
        The share of the variance of each column that the best affine least-squares probe of h explains.
    cost, optimal_cost : float
        E‖h − s(h)‖² over all rows, and its minimum over affine maps that leave no covariance.
    gain : float
        ‖W‖₂.
    rows, effective_rows
        The number of rows, and of the independent rows that they are worth.
    measured_on : {"rows", "moments"}
        Whether covariances and cost were measured on the rows, or follow from moments. R² follows from the covariances
        and from the moments of the erased rows.
    held_out : HeldOutColumns or None
        What is left on rows left out of the fit, where the estimator's ``folds`` asked for it.
    shrinkage, ridge, dtype, precision, rank_tolerance, data, digest
        See `Certificate`.
    """

    method: str
    covariance_before: tuple[float, ...]
    covariance_after: tuple[float, ...]
    r2_before: tuple[float, ...]
    r2_after: tuple[float, ...]
    cost: float
    optimal_cost: float
    gain: float
    rows: int
    effective_rows: float
    shrinkage: str
    ridge: float | None
    dtype: str
    precision: str
    rank_tolerance: float
    data: Literal["fitting moments", "given rows"] = "fitting moments"
    measured_on: MeasuredOn = "moments"
    held_out: HeldOutColumns | None = None
    digest: str = ""

    @property
    def columns(self) -> int:
        """The number of columns k of the concept."""
        return len(self.r2_after)

    def _card(self) -> Card:
        return continuous_card(self)

    def plot(self, *, ax: Any = None) -> Any:
        """Draw what is left of covariance and linear R² of each column, and return the axes.

        Drawing needs ``pip install 'repsurgery[report]'``. ``ax`` are axes of matplotlib; None makes a new figure.
        """
        from repsurgery.pictures.gaps import Gap, draw_gaps

        gaps = [
            Gap("covariance with it", self.covariance_before, self.covariance_after),
            Gap("linear probe R²", self.r2_before, self.r2_after),
        ]
        return draw_gaps(gaps, title=f"{self.method}, continuous concept", method=self.method, ax=ax)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready values."""
        held_out = None if self.held_out is None else self.held_out.to_dict()
        return {**asdict(self), **{name: list(getattr(self, name)) for name in _BY_COLUMN}, "held_out": held_out}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "ContinuousCertificate":
        """Rebuild a certificate from `to_dict`; a value of another type or out of range raises a `DataError`."""
        values = {**plain, **{name: tuple(plain[name]) for name in _BY_COLUMN}}
        if values.get("held_out") is not None:
            values["held_out"] = HeldOutColumns.from_dict(values["held_out"])
        check_fields(cls, values)
        certificate = cls(**values)
        lengths = {len(getattr(certificate, name)) for name in _BY_COLUMN}
        numbers = [
            getattr(certificate, f.name)
            for f in fields(cls)
            if f.name not in (*_BY_COLUMN, "ridge", "held_out") and not isinstance(getattr(certificate, f.name), str)
        ]
        numbers += [value for name in _BY_COLUMN for value in getattr(certificate, name)]
        shares = (*certificate.r2_before, *certificate.r2_after)
        if lengths != {certificate.columns} or not certificate.columns or max(shares) > 1:
            raise DataError("This certificate has no columns, columns that differ in length, or an R² above 1.")
        if not all(math.isfinite(value) and value >= 0 for value in numbers) or certificate.rows < 1:
            raise DataError("A figure of this certificate cannot have been measured. Fit again.")
        return certificate

    def sealed(self, digest: str) -> "ContinuousCertificate":
        """Return this certificate with the digest of the maps and the gate that it describes."""
        return replace(self, digest=digest)


def issue_continuous(method: Method, moments: CrossMoments, m: AffineMap, optimal_cost: float) -> ContinuousCertificate:
    """Return the certificate of the map ``m`` on ``moments``; every measure is computed from the map."""
    before = moments.standardised()
    after = m.linear(before.T).T
    erased, cost = pushforward(moments.rows, m)
    rows = moments.rows
    return ContinuousCertificate(
        method=method.name,
        covariance_before=_floats(np.linalg.norm(before, axis=0)),
        covariance_after=_floats(np.linalg.norm(after, axis=0)),
        r2_before=_explained(rows, before),
        r2_after=_explained(erased, after),
        cost=cost,
        optimal_cost=optimal_cost,
        gain=m.gain(),
        rows=rows.count,
        effective_rows=rows.count / (rows.weight / rows.effective_count),
        shrinkage=method.shrinkage,
        ridge=method.ridge,
        dtype=rows.dtype,
        precision=rows.precision,
        rank_tolerance=rows.rank_tolerance,
    )


def _explained(m: Moments, covariance: Any) -> tuple[float, ...]:
    """Return R² of the best probe of each column, from its covariance (d, k) with rows of these moments."""
    shares: Vector = np.square(whitening(m).apply(covariance)).sum(axis=0)
    # a covariance within rounding of the arithmetic that computed it explains nothing
    rounding = m.dim * np.finfo(np.float64).eps * (np.sqrt(m.trace) + float(np.linalg.norm(m.mean)))
    shares[np.linalg.norm(covariance, axis=0) <= rounding] = 0.0
    return _floats(np.clip(shares, 0.0, 1.0))


def _floats(values: Vector) -> tuple[float, ...]:
    return tuple(map(float, values))
