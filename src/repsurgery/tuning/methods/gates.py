"""Gates that a search tries before its best candidate: hard, and soft."""

import repsurgery as rs
from repsurgery.gates import Gate, LinearGate
from repsurgery.tuning.candidates import CANDIDATES, Gating
from repsurgery.tuning.evidence import Evidence

__all__ = ["STEERED"]

STEERED = 0.2
"""The share of the model's own steps that a hard gate steers."""


def _hard(evidence: Evidence, site: str) -> Gate:
    return rs.calibrate_gate(_discriminant(evidence, site), evidence.steps(site), source=evidence.source, rate=STEERED)


def _soft(evidence: Evidence, site: str) -> Gate:
    return rs.calibrate_soft_gate(_discriminant(evidence, site), evidence.steps(site), source=evidence.source)


def _discriminant(evidence: Evidence, site: str) -> LinearGate:
    gate = rs.build_gate("lda", evidence.moments("on-policy", site), shrinkage="oas")
    assert isinstance(gate, LinearGate)
    return gate


CANDIDATES.register("gate")(Gating(_hard, "gated"))
CANDIDATES.register("soft")(Gating(_soft, "softly gated"))
