"""The strength that spends a budget of nats: one for all sites, from Fisher matrices and moments."""

from collections.abc import Mapping
from typing import Any

from repsurgery.errors import ParameterError
from repsurgery.lm.steer.placing import items_of
from repsurgery.lm.steer.row_steering import as_steering
from repsurgery.moments import ClassMoments
from repsurgery.price import Fisher, Price
from repsurgery.price.fisher import budget_strength

__all__ = ["budgeted_strength"]


def budgeted_strength(
    sites: Any,
    *,
    strength: float | None,
    kl_budget: float | None,
    fisher: Any = None,
    moments: Any = None,
    share: Any = None,
    caller: str = "steer",
) -> float | None:
    """Return the strength at which the steerings of ``sites`` together cost ``kl_budget`` nats per token.

    Without a budget it is ``strength``. The prediction at each site is proportional to the squared strength, so one
    strength for all sites follows from the sum of the predictions at strength 1. Cross terms between sites are ignored.

    Parameters
    ----------
    sites : mapping of site to steering, or one steering whose origin names its site
    fisher : Fisher, mapping of site to Fisher, or None
        None uses the matrix that is stored with each steering.
    moments : Moments, ClassMoments, mapping of site to one of them, or None
    share : float, mapping of site to float, or None
        See `Fisher.kl`.

    Guarantees
    ----------
    The predictions at this strength sum to the budget (test_several_sites_share_one_budget).
    """
    if kl_budget is None:
        if any(value is not None for value in (fisher, moments, share)):
            raise ParameterError(f"{caller} got fisher, moments or share without kl_budget; they serve a budget only.")
        return strength
    if strength is not None:
        raise ParameterError(f"{caller} got strength={strength!r} and kl_budget={kl_budget!r}; pass one of them.")
    items = items_of(sites, caller)
    whole = sum(_price_at(name, value, items, fisher, moments, share).kl(value) for name, value in items)
    return budget_strength(kl_budget, whole)


def _price_at(site: str, value: Any, items: list[Any], fisher: Any, moments: Any, share: Any) -> Price:
    stored = as_steering(value).price
    given = [_at(site, items, one) for one in (fisher, moments, share)]
    if stored is not None:
        given = [kept if one is None else one for one, kept in zip(given, _fields(stored), strict=True)]
    if given[0] is None:
        raise ParameterError(
            f"kl_budget needs the Fisher matrix at {site!r}, and the steering holds none. Pass fisher=lm.fisher(model, "
            f"tokenizer, texts, sites=[{site!r}]) and moments=lm.class_moments(..., pooling='all'), or store both with "
            "the steering: function.with_price(lm.price(...)), or repsurgery fit --store-fisher."
        )
    return Price(*given)


def _fields(price: Price) -> tuple[Any, Any, Any]:
    return price.fisher, price.moments, price.share


def _at(site: str, items: list[Any], value: Any) -> Any:
    if isinstance(value, Mapping) and not isinstance(value, ClassMoments):
        return value.get(site)
    if isinstance(value, Fisher) and len(items) > 1:
        raise ParameterError(f"There are {len(items)} sites. Pass fisher as a mapping of site to Fisher.")
    return value
