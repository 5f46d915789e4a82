"""Open steering files with the site, strength and positions at which a command uses them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import nn

import repsurgery as rs
from repsurgery.callers import warn_caller
from repsurgery.errors import OptionsError, OriginWarning, ParameterError
from repsurgery.lm.steer.budget import budgeted_strength
from repsurgery.lm.steer.placement import Placement
from repsurgery.lm.steer.placing import compare_weights
from repsurgery.lm.steer.positions import Positions
from repsurgery.lm.steer.row_steering import as_steering
from repsurgery.origin import ChosenStrength
from repsurgery.steering.in_force import InForce, strength_in_force

__all__ = ["SteeringFile", "open_steering", "open_steerings", "recognised"]


@dataclass(frozen=True, slots=True, eq=False)
class SteeringFile:
    """A steering from a file, and what a command says of its use.

    Attributes
    ----------
    placement : Placement
        How it is used; the origin of its function holds the same strength and positions.
    site_known : bool
        Whether the caller or the file names the site. Otherwise it is "final", which may not be where it was fitted.
    unmeasured : str
        A sentence, where the file holds a measured effect that does not apply to this use; else empty.
    force : InForce
        The strength at which it is used, and what to say of it.
    """

    placement: Placement
    site_known: bool
    unmeasured: str
    force: InForce

    def warn_about_strength(self) -> None:
        """Warn where the strength is far from what was measured or priced; see `strength_in_force`."""
        self.force.warn()

    def warn_about_chat(self, *, chat: bool) -> None:
        """Warn where the steering was fitted through a chat template and is used without one, or the other way."""
        fitted, site = self.placement.function.origin.in_chat, self.placement.site
        if fitted is None or fitted == chat:
            return
        was, now = ("in a chat", "without one: add --chat") if fitted else ("on plain texts", "in a chat")
        warn_caller(
            f"The steering for {site!r} was fitted {was} and is used {now}; its effect there is not known.",
            OriginWarning,
        )

    @property
    def words(self) -> str:
        """A phrase that gives site, strength and positions."""
        guess = "" if self.site_known else " (the file names no site)"
        at = self.placement
        return f"at {at.site}{guess}, strength {at.strength:g}, positions {at.positions}"


def open_steerings(
    files: Sequence[str | os.PathLike[str]],
    *,
    sites: Sequence[str] = (),
    strength: float | None = None,
    positions: Positions | None = None,
    kl_budget: float | None = None,
    scale: float = 1.0,
) -> list[SteeringFile]:
    """Read files of maps, steering functions or estimators.

    Parameters
    ----------
    files : sequence of paths or str
        A string may also name a repository on the hub or an entry of the zoo; see `rs.load`.
    sites : sequence of str
        One site for all files, or one for each. When empty: the site in each file, else "final".
    strength, positions
        For all files. None: the values in each file, else 1 and "all".
    kl_budget : float or None
        Instead of a strength: the predicted price of each file in nats per token, from the Fisher matrix stored in it.
    scale : float
        Multiplies the strength of each file; see `lm.steer`.
    """
    places: Sequence[str | None] = sites or [None]
    places = list(places) * len(files) if len(places) == 1 else places
    if len(places) != len(files):
        raise OptionsError(
            f"Got {len(sites)} sites for {len(files)} files. Give one site for all files, or one for each."
        )
    how = (strength, positions, kl_budget, scale)
    return [open_steering(file, site, *how) for file, site in zip(files, places, strict=True)]


def open_steering(
    file: str | os.PathLike[str],
    site: str | None = None,
    strength: float | None = None,
    positions: Positions | None = None,
    kl_budget: float | None = None,
    scale: float = 1.0,
    *,
    labelled: bool = False,
) -> SteeringFile:
    """Read one file; see `open_steerings`. ``labelled`` allows a gate that reads labels, which tokens do not have."""
    function = as_steering(rs.load(file), caller=f"The file {file}", labelled=labelled)
    origin = function.origin
    place = site or origin.site
    if kl_budget is not None:
        _require_price(strength, function, file)
        strength = budgeted_strength(
            {place or "final": function},
            strength=None,
            scale=scale,
            kl_budget=kl_budget,
            positions=positions,
            caller="This command",
        )
    asked = Placement(function, place, strength, positions)
    measured = origin.revised(site=origin.site or asked.site)
    force = strength_in_force(function, asked.strength, scale)
    chosen = ChosenStrength(force.strength)
    used = origin.revised(strength=chosen, positions=asked.positions)
    unmeasured = "" if function.outcome is None else _differences(measured, used.revised(site=asked.site))
    placement = Placement(function.with_origin(used), asked.site, chosen, asked.positions)
    return SteeringFile(placement, place is not None, unmeasured, force)


def _differences(measured: rs.Origin, used: rs.Origin) -> str:
    """Return a sentence on how the effect in a file was measured, if it is used otherwise; strengths as shown."""
    pairs = [(was, now) for was, now in zip(_places(measured), _places(used), strict=True) if was != now]
    if not pairs:
        return ""
    before, after = (", ".join(words) for words in zip(*pairs, strict=True))
    return f"the effect in the file was measured {before}; it does not apply {after}."


def _places(origin: rs.Origin) -> tuple[str, ...]:
    return (
        f"at {origin.site}",
        f"at strength {origin.effective_strength():g}",
        f"at positions {origin.positions or 'all'}",
    )


def _require_price(strength: float | None, function: rs.SteeringFunction, file: str | os.PathLike[str]) -> None:
    if strength is not None:
        raise OptionsError("Pass either --strength or --kl-budget.")
    if function.price is None and function.outcome is None:
        raise ParameterError(
            f"--kl-budget needs a Fisher matrix, and {file} holds none. Fit it again with --store-fisher, or add it: "
            "function.with_price(lm.price(model, tokenizer, texts, function))."
        )


def recognised(files: Sequence[SteeringFile], model: nn.Module) -> list[SteeringFile]:
    """Return the same steerings after one comparison of the weights of ``model`` with those each was fitted on."""
    compared = compare_weights(model, [file.placement for file in files])
    return [replace(file, placement=placement) for file, placement in zip(files, compared, strict=True)]
