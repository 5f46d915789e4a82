"""`Certificate`: what a steering function does, as numbers that can be checked again."""

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from repsurgery.arrays import Label, check_labels
from repsurgery.errors import DataError
from repsurgery.fields import check_fields

__all__ = ["Certificate", "Claim", "PairRecord", "Population"]

Claim = Literal["means", "covariances", "variances", "neighbours"]
"""What a method promises to equalise: class means, covariances, their diagonals, expected neighbour distances."""
Population = Literal["source", "all", "neutral"]
"""Whose mean squared displacement ``cost`` is: the steered class, everybody, or the neutral class."""


@dataclass(frozen=True, slots=True)
class PairRecord:
    """One steered class against what it should become; `Certificate` defines the measures.

    Attributes
    ----------
    source, target : label
        Of an eraser's classes each is held against the last, and the last against the first.
    rank_source, rank_target : int or None
        Numerical ranks of the covariances the method used; None where it used none.
    residual_bound : float
        The smallest covariance gap any map of the method's family attains (0 where feasible).
    shrinkage_moved : float
        The covariance gap that the ridge identity predicts from the shrinkage alone.
    """

    source: Label
    target: Label
    rows_source: int
    rows_target: int
    weight_source: float
    mean_gap: float
    covariance_gap: float
    variance_gap: float
    ebbn: float
    cost: float
    optimal_cost: float
    probe_r2: float
    mean_gap_before: float
    covariance_gap_before: float
    ebbn_before: float
    probe_r2_before: float
    gain: float
    feasible: bool = True
    rank_source: int | None = None
    rank_target: int | None = None
    residual_bound: float = 0.0
    shrinkage_moved: float = 0.0
    # measured on rows by `certify`; None until then
    youden: float | None = None
    predicted_mean_gap: float | None = None
    gated_mean_gap: float | None = None
    gated_covariance_gap: float | None = None
    gated_ebbn: float | None = None
    ebbn_u: float | None = None
    prior_entropy: float | None = None
    probe_loss: float | None = None
    gated_probe_loss: float | None = None


_SIGNED = ("youden",)
_RELATIVE = ("covariance_gap", "variance_gap", "covariance_gap_before", "gated_covariance_gap", "shrinkage_moved")
"""Gaps relative to a target's covariance, infinite where that is zero."""
_SHARES = ("probe_r2", "probe_r2_before")
MOST_ROWS = 2**63 - 1


def _check_ranges(kind: type, values: Mapping[str, Any]) -> None:
    """Raise a `DataError` where a number is none that could have been measured: NaN, negative, infinite, too large."""
    for name, value in values.items():
        if not isinstance(value, float | int) or isinstance(value, bool) or name in ("source", "target", "neutral"):
            continue
        least, most = -1.0 if name in _SIGNED else 0.0, math.inf if name in _RELATIVE else sys.float_info.max
        if name in _SIGNED or name in _SHARES:
            most = 1.0
        elif name.startswith(("rows_", "rank_s", "rank_tar")):
            least, most = int(name.startswith("rows_")), MOST_ROWS
        if not least <= value <= most:  # also false for NaN
            raise DataError(
                f"{kind.__name__}.{name} is {value!r}; a measured one lies between {least:g} and {most:g}. The "
                "certificate was altered or damaged; load the original file or fit again."
            )


_WORST = (
    "mean_gap",
    "covariance_gap",
    "variance_gap",
    "ebbn",
    "probe_r2",
    "gain",
    "residual_bound",
    "shrinkage_moved",
    "predicted_mean_gap",
    "gated_mean_gap",
    "gated_covariance_gap",
    "gated_ebbn",
    "ebbn_u",
)


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a steering function does to the data it was fitted on, or to the data it was re-issued on.

    The measures describe the map applied to the source class *by its labels*; with several sources each is the
    worst of them and ``by_source`` has the rest.

    Attributes
    ----------
    mean_gap : float
        ‖E[s(H) | source] − E[H | target]‖.
    covariance_gap : float
        ‖Cov[s(H) | source] − Cov[H | target]‖_F relative to ‖Cov[H | target]‖_F; 1/n covariances.
    variance_gap : float
        The same for the diagonals.
    ebbn : float
        Expected bias by neighbours |tr Σ₀ − tr Σ₁ − ‖μ₁ − μ₀‖²| after steering (V-statistic).
    cost, optimal_cost : float
        E‖h − s(h)‖² over ``population``, and its minimum under the method's own constraint.
    probe_r2 : float
        Share of concept variance that the best least-squares probe explains after steering.
    gain : float
        ‖W‖₂.
    feasible : bool
        Whether a map of the method's family meets its constraint; where not, ``residual_bound`` is the best possible.
        The family is that of all affine maps for `MiMiC`, of diagonal and of scalar ones for the simpler transports.
    rank_tolerance : float
        Relative singular value below which a direction counted as unseen.
    claims : tuple
        What the method promises; `verify` holds it to these.
    digest : str
        SHA-256 of maps and gate.
    data : {"fitting moments", "given rows"}
    youden, predicted_mean_gap, gated_*, ebbn_u, prior_entropy, probe_loss : float or None
        Only `certify` can know them: the gate's Youden J, the residual (1 − J)‖Δ‖ it predicts for mean matching of one
        source (None elsewhere: no such law holds), the gaps that remain
        when the gate decides, EBBN without self pairs, and the log-loss of a converged logistic probe (by labels
        and gated) beside the entropy of the prior it cannot beat when the means are equal.
    """

    method: str
    claims: tuple[Claim, ...]
    population: Population
    target: Label | None
    neutral: Label | None
    by_source: Mapping[Label, PairRecord]
    mean_gap: float
    covariance_gap: float
    variance_gap: float
    ebbn: float
    cost: float
    optimal_cost: float
    probe_r2: float
    gain: float
    feasible: bool
    residual_bound: float
    shrinkage: str
    ridge: float | None
    shrinkage_moved: float
    dtype: str
    precision: str
    rank_tolerance: float
    data: Literal["fitting moments", "given rows"] = "fitting moments"
    digest: str = ""
    youden: float | None = None
    predicted_mean_gap: float | None = None
    gated_mean_gap: float | None = None
    gated_covariance_gap: float | None = None
    gated_ebbn: float | None = None
    ebbn_u: float | None = None
    prior_entropy: float | None = None
    probe_loss: float | None = None
    gated_probe_loss: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready values; ``by_source`` becomes a list of records."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain["claims"] = list(self.claims)
        plain["by_source"] = [asdict(record) for record in self.by_source.values()]
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Certificate":
        """Rebuild a certificate from `to_dict`; a value of another type or out of range raises a `DataError`."""
        for record in plain["by_source"]:
            check_fields(PairRecord, record)
            _check_ranges(PairRecord, record)
        records = [PairRecord(**record) for record in plain["by_source"]]
        sources = [record.source for record in records]
        if not records or len(check_labels(sources, len(sources), caller="Certificate")[0]) < len(sources):
            raise DataError(f"A certificate needs one record of each source; it got those of {sources}.")
        values = {**plain, "claims": tuple(plain["claims"]), "by_source": dict(zip(sources, records, strict=True))}
        check_fields(cls, values)
        _check_ranges(cls, values)
        return cls(**values)

    def sealed(self, digest: str) -> "Certificate":
        """Return this certificate bound to the bytes of maps and gate."""
        return replace(self, digest=digest)


def summarise(records: Mapping[Label, PairRecord], population: Population) -> dict[str, Any]:
    """Return the fields of `Certificate` that sum up its records: the worst, or everybody's mean cost."""
    rows = list(records.values())
    summary: dict[str, Any] = {name: _worst(getattr(r, name) for r in rows) for name in _WORST}
    summary["youden"] = min((r.youden for r in rows if r.youden is not None), default=None)
    hardest = max(rows, key=lambda r: (r.prior_entropy or 0.0) - (r.probe_loss or 0.0))
    for name in ("prior_entropy", "probe_loss", "gated_probe_loss"):
        summary[name] = getattr(hardest, name)
    summary["feasible"] = all(r.feasible for r in rows)
    if population == "all":
        total = sum(r.weight_source for r in rows)
        for name in ("cost", "optimal_cost"):
            summary[name] = sum(getattr(r, name) * r.weight_source for r in rows) / total
    else:
        dearest = max(rows, key=lambda r: r.cost)
        summary["cost"], summary["optimal_cost"] = dearest.cost, dearest.optimal_cost
    return summary


def _worst(values: Any) -> float | None:
    known = [v for v in values if v is not None]
    return max(known) if known else None
