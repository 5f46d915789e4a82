"""The strength that spends a budget of nats: one for all sites, from Fisher matrices and moments."""

import math
from collections.abc import Mapping
from typing import Any

from repsurgery.errors import OptionsError, ParameterError
from repsurgery.lm.steer.placement import Placement
from repsurgery.lm.steer.placing import items_of, refuse_choices
from repsurgery.lm.steer.positions import Positions
from repsurgery.lm.steer.row_steering import as_steering
from repsurgery.moments import ClassMoments
from repsurgery.origin import ChosenStrength, check_scale
from repsurgery.price import Price
from repsurgery.price.fisher import budget_strength

__all__ = ["budgeted_strength"]

_KINDS = {"fisher": "Fisher", "moments": "Moments or ClassMoments", "share": "share"}


def budgeted_strength(
    sites: Any,
    *,
    strength: float | None,
    scale: float = 1.0,
    kl_budget: float | None,
    positions: Positions | None = None,
    fisher: Any = None,
    moments: Any = None,
    share: Any = None,
    caller: str = "steer",
) -> float | None:
    """Return the strength at which the steerings of ``sites`` together cost ``kl_budget`` nats per token.

    Without a budget it is ``strength``. The prediction at each site is proportional to the squared strength, so one
    strength for all sites follows from the sum of the predictions at strength 1. Cross terms between sites are ignored.
    A steering without a Fisher matrix, such as a tuned one, is predicted from the price that was measured of it, where
    it acts as it was measured. The sign is that of the strengths in their origins, which must agree.

    Parameters
    ----------
    sites : mapping of site to steering, or one steering whose origin names its site
    scale : float
        Refused beside a budget, which decides the strength alone.
    positions : str or None
        None uses those of each origin. Below "final" the matrix must be that of these positions; those other than
        "all" and "generated" are refused, because no matrix is.
    fisher : Fisher, mapping of site to Fisher, or None
        None uses the matrix that is stored with each steering. Several sites need a mapping, here and below. It may
        name further sites, and it may leave out a site whose steering stores its own value.
    moments : Moments, ClassMoments, mapping of site to one of them, or None
    share : float, mapping of site to share, or None
        See `Fisher.kl`. Shares by label are given by site too: ``{site: {label: share}}``.

    Guarantees
    ----------
    The predictions at this strength sum to the budget (test_several_sites_share_one_budget).
    One value for several sites, or a misspelt site, is refused (test_one_value_does_not_serve_several_sites,
    test_a_misspelt_site_is_refused).
    A measured price predicts itself (test_a_measured_price_predicts_itself_and_grows_with_the_square).
    A stored price serves its own site only, and no partial positions (test_a_stored_price_serves_its_own_site,
    test_a_budget_needs_every_position).
    The sign of a negative strength is kept (test_a_budget_keeps_the_sign_of_the_strength).
    A budget for generated tokens is what they cost (test_a_budget_is_priced_at_the_positions_that_are_steered).
    """
    if kl_budget is None:
        if any(value is not None for value in (fisher, moments, share)):
            raise OptionsError(f"{caller} got fisher, moments or share without kl_budget; they serve a budget only.")
        return strength
    if check_scale(scale) != 1:
        raise OptionsError(
            f"{caller} got scale={scale!r} and kl_budget={kl_budget!r}; the budget decides the strength alone. Pass "
            "one of them."
        )
    if strength is not None:
        raise OptionsError(f"{caller} got strength={strength!r} and kl_budget={kl_budget!r}; pass one of them.")
    items = items_of(sites, caller)
    for _, value in items:
        if isinstance(value, Placement):
            refuse_choices({"kl_budget": kl_budget}, caller=caller)
        if (partly := positions or as_steering(value).origin.positions) in ("prompt", "last", "assistant"):
            raise OptionsError(
                f"{caller} got kl_budget={kl_budget!r} with positions={partly!r}; the predicted price is that of "
                "steering every position that predicts a token. Pass positions='all' or 'generated', or a strength."
            )
    given = {"fisher": fisher, "moments": moments, "share": share}
    for argument, value in given.items():
        _require_sites(argument, value, [name for name, _ in items])
    signs = {name: math.copysign(1, as_steering(value).origin.effective_strength() or 1) for name, value in items}
    if len(set(signs.values())) > 1:
        raise ParameterError(
            f"{caller} got kl_budget={kl_budget!r}; one strength would follow from it, and the strengths of the "
            f"steerings have different signs ({signs}). Steer with strength or scale."
        )
    whole = sum(_unit_price(name, value, given, positions) for name, value in items)
    return ChosenStrength(signs.popitem()[1] * budget_strength(kl_budget, whole))


def _unit_price(site: str, value: Any, given: Mapping[str, Any], positions: Positions | None) -> float:
    """Return the predicted price of a steering at strength 1."""
    function = as_steering(value)
    origin, measured = function.origin, function.outcome
    fisher = given["fisher"].get(site) if _by_site(given["fisher"]) else given["fisher"]
    as_measured = (
        origin.site in (None, site) and positions in (None, origin.positions or "all") and origin.strength != 0
    )
    if fisher is None and function.price is None and measured is not None and as_measured:
        return measured.kl / (1.0 if origin.strength is None else origin.strength) ** 2
    return _price_at(site, value, given, positions).kl(value)


def _price_at(site: str, value: Any, given: Mapping[str, Any], positions: Positions | None) -> Price:
    stored = as_steering(value).price
    here = {argument: one.get(site) if _by_site(one) else one for argument, one in given.items()}
    if stored is not None and stored.site not in (None, site) and here["fisher"] is None:
        raise ParameterError(
            f"The price stored with this steering was measured at {stored.site!r}, and it would act at {site!r}. Pass "
            f"fisher= and moments= of {site!r}, or a strength."
        )
    if stored is not None:
        here = {argument: getattr(stored, argument) if one is None else one for argument, one in here.items()}
    if here["fisher"] is None:
        raise ParameterError(
            f"kl_budget needs the Fisher matrix at {site!r}, and the steering holds none. Pass fisher=lm.fisher(model, "
            f"tokenizer, texts, sites=[{site!r}]) and moments=lm.class_moments(..., pooling='all'), or store both with "
            "the steering: function.with_price(lm.price(...)), or repsurgery fit --store-fisher."
        )
    price, wanted = Price(**here), positions or as_steering(value).origin.positions or "all"
    # a state at "final" changes its own prediction alone, whichever others are steered
    if site != "final" and price.fisher.positions != wanted:
        remedy = {
            "all": "texts, sites=[...]) in which every position is shifted",
            "generated": "generations, sites=[...], positions='generated') along what lm.generate returns",
        }[wanted]
        raise ParameterError(
            f"kl_budget needs the price of positions={wanted!r}, and the Fisher matrix at {site!r} is that of "
            f"{price.fisher.positions!r}. Pass fisher=lm.fisher(model, tokenizer, {remedy}, store it with lm.price, or "
            f"pass positions={price.fisher.positions!r}, or a strength."
        )
    return price


def _by_site(value: Any) -> bool:
    return isinstance(value, Mapping) and not isinstance(value, ClassMoments)


def _require_sites(argument: str, value: Any, sites: list[str]) -> None:
    """Raise where ``value`` is one value for several sites, or a mapping that seems to misspell a site."""
    if value is None:
        return
    if not _by_site(value):
        if len(sites) > 1:
            raise ParameterError(
                f"There are {len(sites)} sites, and {argument} is one {type(value).__name__}. Pass {argument} as a "
                f"mapping of site to {_KINDS[argument]}, with the sites {sites}."
            )
        return
    # a mapping may cover more sites than are steered, or leave some to what is stored; a misspelt site does both
    unknown, absent = [key for key in value if key not in sites], [site for site in sites if site not in value]
    if unknown and absent:
        raise ParameterError(
            f"{argument} is a mapping with {unknown}, which are not steered, and without {absent}, which are. Name the "
            f"sites as in the steering. Values by label belong inside: {argument}={{{absent[0]!r}: {{label: ...}}}}."
        )
