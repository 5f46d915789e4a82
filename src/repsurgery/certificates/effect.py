"""`EffectCertificate`: the effect per price that a shift promises, measured on prompts that did not choose it."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from repsurgery.cards import Card, Shown
from repsurgery.certificates.certificate import MeasuredOn
from repsurgery.certificates.shown import effect_card
from repsurgery.errors import DataError
from repsurgery.fields import check_fields

__all__ = ["EffectCertificate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectCertificate(Shown):
    """The first-order effect of a shift δ on the expected credit of the steps of a continuation, and its price.

    A slope is gᵀδ / √(½ δᵀFδ): the change of the expected credit per square root of a nat, where g is the gradient of
    the credit, with the texts before each step as the base model writes them; see `lm.credit_gradients`. A shift of k
    nats is predicted to change the credit by slope · √k. Like every certificate it is a measurement and a digest, not
    a proof.

    Attributes
    ----------
    method : str
    kl : float
        The predicted KL(base ‖ steered) of the shift in nats per token: ½ δᵀFδ, or what `priced` states.
    slope : float
        On the prompts that the shift was computed from; larger in size than it is for new prompts.
    held_out_slope, held_out_error : float
        The mean over prompts of the slopes of shifts computed without them, and its standard error.
    prompts, folds : int
        The number of prompts, and of the parts into which they were split.
    positions : int
        The number of positions behind the Fisher matrix.
    damping : float
        The multiple of the mean eigenvalue that was added to the Fisher matrix before it was inverted.
    added_shift : bool
        Whether a given shift was added to the natural one. It is not computed again for each fold.
    digest : str
        SHA-256 of maps and gate.
    """

    method: str
    kl: float
    slope: float
    held_out_slope: float
    held_out_error: float
    prompts: int
    folds: int
    positions: int
    damping: float
    added_shift: bool = False
    digest: str = ""

    @property
    def measured_on(self) -> MeasuredOn:
        """The slopes follow from moments: mean gradients, and the Fisher matrix."""
        return "moments"

    @property
    def held_out(self) -> None:
        """None: the held-out slope is a figure of its own."""

    @property
    def predicted_effect(self) -> float:
        """The predicted change of the expected credit, summed over the steps of a text, from the held-out slope.

        The texts before each step are taken as the base model writes them.
        """
        return self.held_out_slope * math.sqrt(self.kl)

    def priced(self, kl: float) -> "EffectCertificate":
        """Return this certificate with a price of the same shift that was measured apart from its fit.

        A shift that was chosen by a Fisher matrix is cheap by that matrix, the more so the fewer draws it is from. The
        slopes are per square root of a nat, so that the predicted effect stays the same.
        """
        per_root = math.sqrt(self.kl / kl)
        slopes = {name: per_root * getattr(self, name) for name in ("slope", "held_out_slope", "held_out_error")}
        return replace(self, kl=kl, **slopes)

    def _card(self) -> Card:
        return effect_card(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "EffectCertificate":
        """Rebuild a certificate from `to_dict`; a value of another type or out of range raises a `DataError`."""
        check_fields(cls, plain)
        certificate = cls(**plain)
        numbers = (certificate.slope, certificate.held_out_slope)
        sizes = (certificate.kl, certificate.held_out_error, certificate.damping)
        if not all(map(math.isfinite, (*numbers, *sizes))) or min(sizes) < 0:
            raise DataError(
                "A slope, error, price or damping of this certificate cannot have been measured. Fit again."
            )
        if min(certificate.prompts, certificate.folds) < 2 or certificate.positions < 1:
            raise DataError("This certificate names fewer than two prompts or folds, or no positions. Fit again.")
        return certificate

    def sealed(self, digest: str) -> "EffectCertificate":
        """Return this certificate with the digest of the maps and the gate that it describes."""
        return replace(self, digest=digest)
