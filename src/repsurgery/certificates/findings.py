"""`Verification`: the verdict of rows on a certificate, and the findings that it follows from."""

from dataclasses import dataclass
from typing import Any, Literal

from repsurgery.arrays import Label
from repsurgery.cards import Card, Shown
from repsurgery.certificates.certificate import Claim
from repsurgery.certificates.claims import SHARE
from repsurgery.certificates.evidence import Evidence
from repsurgery.certificates.shown import finding_card, verification_card

__all__ = ["FEWEST_ROWS", "LEVEL", "POWER", "Finding", "Verdict", "Verification", "finding_of"]

Verdict = Literal["supported", "contradicted", "cannot tell"]

LEVEL = 0.01
"""The chance that rows of the kind the map was fitted on contradict it, over all claims and classes together."""
POWER = 0.8
"""Below this chance of detecting a violation, rows that do not contradict a claim do not support it either."""
FEWEST_ROWS = 5
"""With fewer new rows of a class than this, `verify` raises an error."""


@dataclass(frozen=True, slots=True)
class Finding(Shown):
    """The result of testing one claim about one class.

    Attributes
    ----------
    source : label
    claim : str
        What is promised to be equal: means, covariances, variances, neighbours. Of a continuous concept:
        "no covariance", and ``source`` is the number of the column.
    gap, claimed : float
        The gap on these rows, measured as in the certificate, and the certified gap.
    where : str
        What the strongest test examined: "along the concept" (the gap before steering), or "in norm".
    found, allowed : float
        The gap in that test, and the largest gap that would not have contradicted the claim.
    p_value : float
        Corrected for the tests of this claim, not for the number of claims.
    power : float
        The estimated chance of contradicting a map that leaves a fifth of the gap.
    verdict : {"supported", "contradicted", "cannot tell"}
    rows, effective : (source, target)
        The numbers of new rows, and of the independent rows that they are worth.
    """

    source: Label
    claim: Claim | Literal["no covariance"]
    gap: float
    claimed: float
    where: str
    found: float
    allowed: float
    p_value: float
    power: float
    verdict: Verdict
    rows: tuple[int, int] = (0, 0)
    effective: tuple[float, float] = (0.0, 0.0)

    def _card(self) -> Card:
        return finding_card(self)


def finding_of(evidence: Evidence, *, gap: float, before: float, level: float, **facts: Any) -> Finding:
    """Return what a test at ``level`` found, where steering left ``gap`` of the gap ``before``.

    ``facts`` are the fields that do not follow from the test: source, claim, claimed, rows and effective.
    """
    # a gap no smaller than the one before steering supports nothing, however much of it sampling error may explain
    supported = evidence.power >= POWER and gap < before
    return Finding(
        gap=gap,
        where=evidence.where,
        found=float(evidence.found),
        allowed=float(evidence.allowed),
        p_value=evidence.p_value,
        power=evidence.power,
        verdict="contradicted" if evidence.p_value <= level else "supported" if supported else "cannot tell",
        **facts,
    )


@dataclass(frozen=True, slots=True)
class Verification(Shown):
    """The verdict of rows on a certificate; without rows, only its bytes were compared.

    The tests assume that rows, or the groups that were given, are independent, that rows are unweighted, and that the
    scores they average have finite variance (for covariances and neighbours: finite fourth moments). Where the
    estimated variance depends on a few rows, the verdict is "cannot tell" rather than a false alarm.

    Attributes
    ----------
    verdict : {"supported", "contradicted", "cannot tell"}
        The worst of the findings; "cannot tell" if no rows were given.
    level, share : float
        The false-alarm rate over all tests, and the share of the gap for which ``power`` is computed.
    findings : tuple of Finding
    """

    findings: tuple[Finding, ...] = ()
    level: float = LEVEL
    share: float = SHARE

    def _card(self) -> Card:
        return verification_card(self)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of any claim."""
        verdicts = {f.verdict for f in self.findings}
        if "contradicted" in verdicts:
            return "contradicted"
        return "supported" if verdicts == {"supported"} else "cannot tell"

    @property
    def p_value(self) -> float | None:
        """The smallest p-value, multiplied by the number of findings; None without rows."""
        return min((min(1.0, f.p_value * len(self.findings)) for f in self.findings), default=None)

    @property
    def power(self) -> float | None:
        """The smallest power of any finding; None without rows."""
        return min((f.power for f in self.findings), default=None)
