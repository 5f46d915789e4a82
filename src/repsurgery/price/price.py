"""`Price`: a Fisher matrix with the moments that a steering needs to be priced, as it is stored beside its maps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Label
from repsurgery.cards import Card, Shown
from repsurgery.errors import DataError, ParameterError
from repsurgery.files import Contents, built_from
from repsurgery.moments import ClassMoments, Moments, by_class
from repsurgery.price.fisher import Fisher
from repsurgery.price.shown import price_card

__all__ = ["Price", "price_from_parts", "price_parts"]


@dataclass(frozen=True, slots=True, eq=False)
class Price(Shown):
    """What the price of a steering follows from.

    Attributes
    ----------
    fisher : Fisher
    moments : Moments, ClassMoments or None
        Of all positions, or of those that the gate selects; see `Fisher.kl`.
    share : float, mapping of label to float, or None
        The share of the selected positions; see `Fisher.kl`.
    site : str or None
        Where it was measured; `lm.steer` refuses it at another site.
    """

    fisher: Fisher
    moments: Moments | ClassMoments | None = None
    share: float | Mapping[Label, float] | None = None
    site: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.fisher, Fisher):
            raise ParameterError(f"A price needs a Fisher matrix, not a {type(self.fisher).__name__}; see lm.fisher.")

    def _card(self) -> Card:
        return price_card(self)

    def kl(self, steering: Any, *, strength: float = 1.0) -> float:
        """Return the predicted KL(base ‖ steered) in nats per token; see `Fisher.kl`."""
        return self.fisher.kl(steering, self.moments, share=self.share, strength=strength)

    def strength(self, steering: Any, kl_budget: float) -> float:
        """Return the strength at which ``steering`` is predicted to cost ``kl_budget`` nats per token."""
        return self.fisher.strength(steering, kl_budget, self.moments, share=self.share)


def price_parts(price: Price) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and the JSON header of ``price``; matrices are rounded to float32, which halves the file."""
    header: dict[str, Any] = {"count": price.fisher.count, "samples": price.fisher.samples, "moments": None}
    header |= {"site": price.site, "positions": price.fisher.positions}
    arrays: dict[str, NDArray[Any]] = {"fisher": price.fisher.matrix.astype(np.float32)}
    header["share"] = list(map(list, price.share.items())) if isinstance(price.share, Mapping) else price.share
    if price.moments is not None:
        price.moments.check_sketch()
        # what is rounded is not what the sketch counted
        held = (
            by_class.single_to_contents(price.moments.derived())
            if isinstance(price.moments, Moments)
            else by_class.to_contents(ClassMoments({label: m.derived() for label, m in price.moments.items()}))
        )
        header["moments"] = {"kind": held.kind, **held.header}
        arrays |= {f"moments/{name}": array.astype(np.float32) for name, array in held.arrays.items()}
    return arrays, header


def price_from_parts(arrays: Mapping[str, NDArray[Any]], header: Any) -> Price | None:
    """Return the price from `price_parts`, or None where ``header`` is None."""
    if header is None:
        return None
    with built_from("a price"):
        fisher = Fisher(header["count"], arrays["fisher"], header["samples"], header.get("positions", "all"))
        share, moments, site = header["share"], header["moments"], header.get("site")
        if site is not None and not isinstance(site, str):
            raise DataError(f"The site of a price is a text, not {site!r}.")
        if isinstance(share, list):
            share = {label: float(value) for label, value in share}
        if moments is None:
            return Price(fisher, None, share, site)
        held = {
            name.removeprefix("moments/"): array.astype(np.float64)
            for name, array in arrays.items()
            if name.startswith("moments/")
        }
        contents = Contents(moments["kind"], moments, held)
        single = moments["kind"] == by_class.SINGLE
        found = by_class.single_from_contents(contents) if single else by_class.from_contents(contents)
        return Price(fisher, found, share, site)
