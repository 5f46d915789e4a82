"""What one row of a batch is steered by: one steering, several in order, or none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from torch import nn

from repsurgery.affine import AffineMap, Translation
from repsurgery.arrays import Vector
from repsurgery.callers import warn_caller
from repsurgery.errors import ParameterError, SteeringWarning, SurgeryError
from repsurgery.lm.sites.names import Site, resolve_site
from repsurgery.lm.sites.wrappers import unwrapped
from repsurgery.lm.steer.placement import placements_in
from repsurgery.lm.steer.placing import Compared, placements, refuse_choices, sites_of
from repsurgery.lm.steer.positions import Positions, check_positions
from repsurgery.lm.steer.row_steering import RowSteering
from repsurgery.lm.steer.steer import prepare
from repsurgery.moments import Moments
from repsurgery.origin import check_scale, finite_strength

__all__ = ["Choice", "Interference", "RowPart", "RowPlan", "prepare_row", "price_words", "with_defaults"]

NOTABLE = 0.2
"""The predicted change of an earlier steering's effect from which composing two steerings gives a warning."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A steering for one row of a batch, and how it is used there.

    Attributes
    ----------
    steering : estimator, SteeringFunction, AffineMap, mapping of site to one of them, or placements
        A `Placement`, or a list of them, states strength and positions itself.
    strength : float or None
        None uses the strength that the origin of the steering names, else 1.
    positions : {"all", "generated", "prompt", "last", "assistant"} or None
        None uses the positions that the origin of the steering names, else "all".
    scale : float
        Multiplies that strength; see `steer`.
    """

    steering: Any
    strength: float | None = None
    positions: Positions | None = None
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.strength is not None:
            object.__setattr__(self, "strength", finite_strength(self.strength))
        if self.positions is not None:
            check_positions(self.positions)
        object.__setattr__(self, "scale", check_scale(self.scale))
        if placements_in(self.steering):
            refuse_choices({"strength": self.strength, "positions": self.positions}, caller="Choice")


@dataclass(frozen=True, slots=True, eq=False)
class RowPart:
    """One steering at one site, ready for states.

    Attributes
    ----------
    site : Site
    steering : RowSteering
    positions : str
    key : str
        Equal for parts that do the same, which are applied together.
    """

    site: Site
    steering: RowSteering
    positions: Positions
    key: str


@dataclass(frozen=True, slots=True)
class Interference:
    """How much a later steering of a row changes the effect of an earlier one at the same site.

    Attributes
    ----------
    first, second : int
        Their numbers in the order of the row, from 0.
    site : str
    change : float
        ⟨B(A(x)) − A(x), A(x) − x⟩ / ‖A(x) − x‖² at the mean x of the states: −1 where the second steering undoes the
        first, +1 where it doubles it.
    """

    first: int
    second: int
    site: str
    change: float


@dataclass(frozen=True, eq=False)
class RowPlan:
    """The steerings of one row in the order in which they are applied; see `prepare_row`.

    Attributes
    ----------
    parts : tuple of RowPart
    interferences : tuple of Interference
    far : tuple of (int, str)
        The number of each steering whose strength is far above the measured one, from 0, and a sentence on it.
    prices : tuple of float
        Nats per token of its steerings, where they add up notably; else empty.
    """

    parts: tuple[RowPart, ...] = ()
    interferences: tuple[Interference, ...] = ()
    far: tuple[tuple[int, str], ...] = ()
    prices: tuple[float, ...] = ()

    @cached_property
    def key(self) -> str:
        """Equal for rows that are steered alike."""
        return "; ".join(part.key for part in self.parts)

    @property
    def needs_turns(self) -> bool:
        """Whether a steering of the row acts at the positions of the assistant's turns."""
        return any(part.positions == "assistant" for part in self.parts)


def prepare_row(model: nn.Module, value: Any) -> RowPlan:
    """Return how one row is steered, checked against ``model``.

    Parameters
    ----------
    model : nn.Module
    value : None, a steering, a mapping of site to steering, a Placement, a Choice, or a sequence of these
        A sequence is composed: at one site, the first steering acts first, and the next one receives its result. A
        steering whose origin names no site acts at "final".

    Raises
    ------
    SiteError, ShapeError, ParameterError
        For a site that the model does not have, a map of another width, and anything that is not a steering.

    Warns
    -----
    SteeringWarning
        Where a later steering is predicted to change the effect of an earlier one by a fifth or more; see
        `Interference`. The prediction exists for two shifts at one site, and for other maps if the first steering
        stores moments with its price. Also where two or more of them store a price, and together cost a fifth more
        than the dearest of them.
    ExtrapolationWarning, OriginWarning
        As `steer`.
    """
    if isinstance(value, RowPlan):
        return value
    inner = unwrapped(model)
    placed = [(i, placement) for i, choice in enumerate(_choices(value)) for placement in _placed(inner, choice)]
    interferences = tuple(_interferences(inner, placed))
    for one in interferences:
        if abs(one.change) >= NOTABLE:
            warn_caller(
                f"At {one.site!r} steering {one.second + 1} of this row is predicted to change the effect of steering "
                f"{one.first + 1} by {one.change:+.0%}. Lower the strength of one of them, or use them on their own.",
                SteeringWarning,
            )
    prices = _adding_up(placed)
    if prices:
        warn_caller(f"The steerings of this row {price_words(prices)}", SteeringWarning)
    far = tuple((i, placement.far) for i, placement in placed if placement.far)
    return RowPlan(tuple(_part(inner, placement) for _, placement in placed), interferences, far, prices)


def price_words(prices: Sequence[float]) -> str:
    """Return what several steerings of one row cost together."""
    each = " + ".join(f"{price:.2g}" for price in prices)
    return (
        f"together cost about {sum(prices):.2g} nats per token ({each}), because prices add up. Lower the scale of "
        "each, or use one of them."
    )


def with_defaults(value: Any, strength: float | None, positions: Positions | None, scale: float = 1.0) -> Any:
    """Return ``value`` of a row with ``strength`` and ``positions`` where its choices state none, times ``scale``."""
    choices = []
    for choice in _choices(value):
        times = choice.scale * check_scale(scale)
        if placements_in(choice.steering):
            choices.append(Choice(choice.steering, scale=times))
            continue
        own = strength if choice.strength is None else choice.strength
        where = positions if choice.positions is None else choice.positions
        choices.append(Choice(choice.steering, own, where, times))
    return choices


def _choices(value: Any) -> list[Choice]:
    if value is None:
        return []
    if isinstance(value, Choice):
        return [value]
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        if any(isinstance(one, Sequence) for one in value):
            raise ParameterError("A row's steerings are nested lists; give one list of steerings for each row.")
        return [choice for one in value for choice in _choices(one)]
    return [Choice(value)]


def _placed(model: nn.Module, choice: Choice) -> list[Compared]:
    how = {"strength": choice.strength, "scale": choice.scale, "positions": choice.positions}
    return placements(model, sites_of(choice.steering), **how, caller="steer_rows")  # type: ignore[arg-type]


def _part(model: nn.Module, at: Compared) -> RowPart:
    site, steering, digest = prepare(model, at.site, at.function, at.strength)
    return RowPart(site, steering, at.positions, f"{site.path} {site.side} {digest} {at.strength} {at.positions}")


def _adding_up(placed: Sequence[tuple[int, Compared]]) -> tuple[float, ...]:
    """Return the known prices by steering, where their sum is notably more than each of them; else nothing."""
    if len({i for i, _ in placed}) < 2:
        return ()
    by_choice: dict[int, float] = {}
    for i, placement in placed:
        kl = _known_kl(placement)
        by_choice[i] = by_choice.get(i, 0.0) + (0.0 if kl is None else kl)
    prices = tuple(price for price in by_choice.values() if price > 0)
    return prices if len(prices) > 1 and sum(prices) >= (1 + NOTABLE) * max(prices) else ()


def _known_kl(at: Compared) -> float | None:
    """Return what a steering costs in nats per token: as measured, else as predicted by the price that it stores."""
    price = at.function.price
    if at.measured_kl is not None or price is None or price.site not in (None, at.site):
        return at.measured_kl
    try:
        return price.kl(at.function, strength=at.strength)
    except SurgeryError:  # a price that was stored without what this map needs
        return None


def _place(model: nn.Module, at: Compared) -> tuple[str, str]:
    site = resolve_site(model, at.site)
    return site.path, site.side


def _interferences(model: nn.Module, placed: Sequence[tuple[int, Compared]]) -> list[Interference]:
    results = []
    for (i, first), (j, second) in combinations(placed, 2):
        if i < j and _place(model, first) == _place(model, second) and first.function.dim == second.function.dim:
            change = _change(first, second)
            if change is not None:
                results.append(Interference(i, j, first.site, change))
    return results


def _change(first: Compared, second: Compared) -> float | None:
    """Return the predicted change of the first steering's effect; None where nothing predicts it."""
    A, B = _only_map(first), _only_map(second)
    if A is None or B is None:
        return None
    x = _mean(first)
    if x is None and isinstance(A, Translation) and isinstance(B, Translation):
        x = np.zeros(A.dim)
    if x is None:
        return None
    moved = A.apply(x[None])
    effect = moved[0] - x
    size = float(effect @ effect)
    return float((B.apply(moved)[0] - moved[0]) @ effect) / size if size > 0 else None


def _only_map(at: Compared) -> AffineMap | None:
    maps: Mapping[Any, AffineMap] = at.function.maps
    if len(maps) > 1:
        return None
    (m,) = maps.values()
    return m.interpolate(at.strength)


def _mean(at: Compared) -> Vector | None:
    moments = None if at.function.price is None else at.function.price.moments
    if moments is None:
        return None
    whole = moments if isinstance(moments, Moments) else moments.total
    return np.asarray(whole.mean)
