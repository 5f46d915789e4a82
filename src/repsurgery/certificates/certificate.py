"""`Certificate`: the measured effect of a steering function, as numbers that can be measured again."""

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from repsurgery.arrays import Label, check_labels
from repsurgery.cards import Card, Shown
from repsurgery.certificates.shown import certificate_card, pair_card
from repsurgery.errors import DataError
from repsurgery.fields import check_fields

__all__ = ["Certificate", "Claim", "HeldOut", "MeasuredOn", "PairRecord", "Population"]

Claim = Literal["means", "covariances", "variances", "neighbours"]
"""What a method promises to equalise: class means, covariances, their diagonals, expected neighbour distances."""
Population = Literal["source", "all", "neutral"]
"""The rows whose mean squared displacement is ``cost``: the steered class, all classes, or the neutral class."""


MeasuredOn = Literal["rows", "moments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """What a method leaves on rows that its map was not fitted on: those of each fold, by the map of all other folds.

    The gaps are those of the population: the sampling error of the rows left out is estimated and taken off, so that a
    perfect map leaves about 0 however few rows there are. With several sources each is the worst of them.

    Attributes
    ----------
    mean_gap, covariance_gap, ebbn : float
        As in `Certificate`.
    mean_gap_before, covariance_gap_before, ebbn_before : float
        The same of the same rows without steering.
    folds : int
    """

    mean_gap: float
    covariance_gap: float
    ebbn: float
    mean_gap_before: float
    covariance_gap_before: float
    ebbn_before: float
    folds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures(Shown):
    """The measures of one steered class, or their summary over all of them; `Certificate` defines each."""

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
    shrinkage_moved: float
    # `certify` measures these on rows; they are None before
    youden: float | None = None
    predicted_mean_gap: float | None = None
    gated_mean_gap: float | None = None
    gated_covariance_gap: float | None = None
    gated_ebbn: float | None = None
    ebbn_u: float | None = None
    prior_entropy: float | None = None
    probe_loss: float | None = None
    gated_probe_loss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRecord(Measures):
    """The measures of one steered class against the class it should match; `Certificate` defines the measures.

    Attributes
    ----------
    source, target : label
        An eraser has no target class: each class is compared with the last one, and the last with the first.
    rows_source, rows_target : int
    effective_source, effective_target : float or None
        How many independent rows these are worth: their number divided by the design effect of their groups, see
        `Moments.effective_count`. None in certificates of older files.
    rank_source, rank_target : int or None
        Numerical ranks of the covariances that the method used; None if it used no covariance.
    residual_bound : float
        The smallest covariance gap that any map of the method's family attains: 0 where feasible, infinite where the
        target's covariance is zero, to which it is relative.
    shrinkage_moved : float
        The covariance gap that the shrinkage alone leaves: as the ridge identity predicts it, or measured where
        covariances were pooled.
    measured_source, measured_target : int or None
        How many rows of the two classes were steered one by one; where these are all, the gaps and the cost were
        computed from them. None where no rows were at hand.
    alpha_source, alpha_target : float or None
        How far the two covariances were drawn towards the pooled one; None without that shrinkage.
    """

    source: Label
    target: Label
    rows_source: int
    rows_target: int
    weight_source: float
    mean_gap_before: float
    covariance_gap_before: float
    ebbn_before: float
    probe_r2_before: float
    rank_source: int | None = None
    rank_target: int | None = None
    alpha_source: float | None = None
    alpha_target: float | None = None
    effective_source: float | None = None
    effective_target: float | None = None
    measured_source: int | None = None
    measured_target: int | None = None

    @property
    def steered_one_by_one(self) -> list[tuple[int, bool]]:
        """How many rows of source and target were steered one by one, and whether these are all."""
        pairs = (self.measured_source, self.rows_source), (self.measured_target, self.rows_target)
        return [(steered, steered == rows) for steered, rows in pairs if steered is not None]

    def _card(self) -> Card:
        return pair_card(self)

    @property
    def effective_rows(self) -> tuple[float, float]:
        """The effective numbers of rows of source and target; where none are stated, the numbers of rows."""
        source, target = self.effective_source, self.effective_target
        return self.rows_source if source is None else source, self.rows_target if target is None else target


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate(Measures):
    """The measured effect of a steering function on the data it was fitted on, or on the rows passed to `certify`.

    A certificate is a measurement and a digest, not a mathematical proof: `verify` compares the digest with the bytes
    of maps and gate, and tests the claims on new rows. The measures describe the map applied to the source class
    *according to its labels*. With several sources each measure is the worst of them; ``by_source`` holds all.

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
        Whether a map of the method's family meets its constraint; where none does, ``residual_bound`` is the smallest
        possible gap. The family is all affine maps for `MiMiC`, diagonal or scalar maps for the simpler transports.
    rank_tolerance : float
        Relative singular value below which a direction counted as absent from the data.
    claims : tuple
        What the method promises; `verify` tests these claims.
    shrinkage, ridge, alpha
        The estimator's parameters; ``ridge`` and ``alpha`` are None where the shrinkage does not read them.
    digest : str
        SHA-256 of maps and gate.
    data : {"fitting moments", "given rows"}
        The rows of the fit, or those passed to `certify`.
    measured_on : {"rows", "moments"}
        Whether these rows were measured. On "rows", every row of a class of at most so many as ``measured_source`` of
        its record states was steered, and the gaps and the cost follow from the results. Those of larger classes follow
        from the moments, with which all rows agreed along four directions, pulled back through the map; the mean gap is
        still that of all rows, by the sketch. On "moments" (streams, ``partial_fit``, ``from_moments``) there were no
        rows.
    held_out : HeldOut or None
        The gaps on rows left out of the fit, where the estimator's ``folds`` asked for them.
    youden, predicted_mean_gap, gated_*, ebbn_u, prior_entropy, probe_loss : float or None
        Measured by `certify` alone: the gate's Youden J; the residual (1 − J)‖Δ‖ that it predicts for mean matching of
        one source (None elsewhere, because no such law holds); the gaps that remain when the gate decides; EBBN without
        self pairs; the log-loss of a converged logistic probe (by labels and gated), and the entropy of the prior,
        below which that loss cannot fall when the means are equal.
    """

    method: str
    claims: tuple[Claim, ...]
    population: Population
    target: Label | None
    neutral: Label | None
    by_source: Mapping[Label, PairRecord]
    shrinkage: str
    ridge: float | None
    alpha: float | str | None = None
    dtype: str
    precision: str
    rank_tolerance: float
    data: Literal["fitting moments", "given rows"] = "fitting moments"
    measured_on: MeasuredOn = "moments"
    held_out: HeldOut | None = None
    digest: str = ""

    def _card(self) -> Card:
        return certificate_card(self)

    def plot(self, *, ax: Any = None) -> Any:
        """Draw what is left of each gap, and return the axes; of several sources, a dot each.

        Drawing needs ``pip install 'repsurgery[report]'``. ``ax`` are axes of matplotlib; None makes a new figure.
        """
        from repsurgery.pictures.gaps import Gap, draw_gaps

        names = {"mean_gap": "mean gap", "covariance_gap": "covariance gap", "ebbn": "neighbour bias"}
        names["probe_r2"] = "linear probe R²"
        records = list(self.by_source.values())
        gaps = [
            Gap(words, [getattr(r, f"{name}_before") for r in records], [getattr(r, name) for r in records])
            for name, words in names.items()
        ]
        return draw_gaps(gaps, title=f"{self.method}, {_ON[self.data]}", method=self.method, ax=ax)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready values; ``by_source`` becomes a list of records."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain["claims"] = list(self.claims)
        plain["by_source"] = [asdict(record) for record in self.by_source.values()]
        plain["held_out"] = None if self.held_out is None else asdict(self.held_out)
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
        if values.get("held_out") is not None:
            check_fields(HeldOut, values["held_out"])
            _check_ranges(HeldOut, values["held_out"])
            values["held_out"] = HeldOut(**values["held_out"])
        check_fields(cls, values)
        _check_ranges(cls, values)
        return cls(**values)

    def sealed(self, digest: str) -> "Certificate":
        """Return this certificate with the digest of the maps and the gate that it describes."""
        return replace(self, digest=digest)


_ON = {"fitting moments": "on the data it was fitted on", "given rows": "on the given rows"}
_SIGNED = ("youden",)
_RELATIVE = (
    "covariance_gap",
    "variance_gap",
    "covariance_gap_before",
    "gated_covariance_gap",
    "shrinkage_moved",
    "residual_bound",
)
"""Gaps relative to a target's covariance, infinite where that is zero."""
_SHARES = ("probe_r2", "probe_r2_before", "alpha", "alpha_source", "alpha_target")
MOST_ROWS = 2**63 - 1


def _check_ranges(kind: type, values: Mapping[str, Any]) -> None:
    """Raise a `DataError` where a number cannot have been measured: NaN, negative, infinite or too large."""
    for name, value in values.items():
        if not isinstance(value, float | int) or isinstance(value, bool) or name in ("source", "target", "neutral"):
            continue
        least, most = -1.0 if name in _SIGNED else 0.0, math.inf if name in _RELATIVE else sys.float_info.max
        if name in _SIGNED or name in _SHARES:
            most = 1.0
        elif name.startswith(("rows_", "rank_s", "rank_tar", "measured_")):
            least, most = int(name.startswith("rows_")), MOST_ROWS
        elif name == "folds":
            least, most = 2, MOST_ROWS
        if not least <= value <= most:  # also false for NaN
            raise DataError(
                f"{kind.__name__}.{name} is {value!r}; a measured one lies between {least:g} and {most:g}. The "
                "certificate was altered or damaged; load the original file or fit again."
            )


_OF_ONE_CLASS = ("cost", "optimal_cost", "feasible", "youden", "prior_entropy", "probe_loss", "gated_probe_loss")
"""Measures whose summary is not simply the largest value of any class."""


def summarise(records: Mapping[Label, PairRecord], population: Population) -> dict[str, Any]:
    """Return the `Measures` of a certificate from its records: the worst, or the mean cost over all classes."""
    rows = list(records.values())
    summary: dict[str, Any] = {
        f.name: _worst(getattr(r, f.name) for r in rows) for f in fields(Measures) if f.name not in _OF_ONE_CLASS
    }
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


def _worst(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
