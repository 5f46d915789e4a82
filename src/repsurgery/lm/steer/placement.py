"""`Placement`: a steering function at a site, at a strength and at positions."""

from dataclasses import dataclass
from typing import Any

from repsurgery.arrays import check_finite
from repsurgery.errors import ParameterError
from repsurgery.lm.steer.positions import Positions, check_positions
from repsurgery.lm.steer.row_steering import as_steering
from repsurgery.origin import finite_strength
from repsurgery.steering.function import SteeringFunction

__all__ = ["Placement", "placements_in"]


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Placement:
    """A steering function at a site, at a strength and at positions of a model's texts.

    Whatever takes a steering takes a placement, too, or a list of them, which act in this order. What a placement
    states holds as it is: a call may multiply its strength by ``scale``, but any other ``strength``, ``positions`` or
    ``site`` beside it is refused.

    Parameters
    ----------
    function : SteeringFunction, fitted estimator or AffineMap
        At strength 1, as it was fitted; it is stored as a SteeringFunction.
    site : str or None
        See `resolve_site`. None is the site in the origin of the function, else "final".
    strength : float or None
        0 leaves the states unchanged, 1 applies the map. None is the strength in the origin, else 1.
    positions : {"all", "generated", "prompt", "last", "assistant"} or None
        See `steer`. None are the positions in the origin, else "all".

    Guarantees
    ----------
    It steers like its function with its site, strength and positions, bit for bit
    (test_a_placement_steers_like_its_parts), also where the origin says otherwise
    (test_a_placement_wins_over_the_origin).
    What is left open comes from the origin (test_the_origin_fills_what_is_left_open).

    Examples
    --------
    >>> import repsurgery as rs
    >>> from repsurgery import lm
    >>> shift = rs.SteeringFunction({None: rs.Translation([1.0, 2.0])}).with_origin(site="layers.15", strength=0.5)
    >>> placement = lm.Placement(shift, positions="generated")
    >>> placement.site, placement.strength, placement.positions
    ('layers.15', 0.5, 'generated')
    >>> placement.scaled(3).strength
    1.5
    """

    function: SteeringFunction
    site: str
    strength: float
    positions: Positions

    def __init__(
        self,
        function: Any,
        site: str | None = None,
        strength: float | None = None,
        positions: Positions | None = None,
    ) -> None:
        steering = as_steering(function, caller="Placement", labelled=True)
        origin = steering.origin
        site = (origin.site or "final") if site is None else site
        if not isinstance(site, str) or not site.strip():
            raise ParameterError(f"site is {site!r}; it must be the name of a site, such as 'layers.15' or 'final'.")
        strength = origin.effective_strength() if strength is None else finite_strength(strength)
        positions = (origin.positions or "all") if positions is None else positions  # type: ignore[assignment]
        object.__setattr__(self, "function", steering)
        object.__setattr__(self, "site", site)
        object.__setattr__(self, "strength", strength)
        object.__setattr__(self, "positions", check_positions(positions))  # type: ignore[arg-type]

    @property
    def key(self) -> str:
        """A text that is equal for equal maps and gate at the same place, and differs otherwise.

        Guarantees
        ----------
        It differs where maps, gate, site, strength or positions do
        (test_the_key_differs_exactly_where_the_steering_does).
        """
        where = "" if self.positions == "all" else f"|{self.positions}"
        return f"{self.function.digest()}|{self.site}|{self.strength!r}{where}"

    def scaled(self, factor: float) -> "Placement":
        """Return the same function at its strength times ``factor``, rounded to six digits so that it can be written.

        Guarantees
        ----------
        The strength has at most six digits (test_a_scaled_strength_has_six_digits).
        """
        times = check_finite("factor", factor, needed="one finite number")
        return Placement(self.function, self.site, float(f"{self.strength * times:.6g}"), self.positions)


def placements_in(value: object) -> list[Placement]:
    """Return the placements that ``value`` is, one or a list of them; an empty list if it is anything else."""
    every = list(value) if isinstance(value, (list, tuple)) else [value]
    placed = [one for one in every if isinstance(one, Placement)]
    return placed if len(placed) == len(every) else []
