"""Open steering files with the site, strength and positions at which a command uses them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import nn

import repsurgery as rs
from repsurgery.callers import warn_caller
from repsurgery.errors import OptionsError, OriginWarning, ParameterError
from repsurgery.lm.steer.budget import budgeted_strength
from repsurgery.lm.steer.placing import compare_weights
from repsurgery.lm.steer.positions import Positions, check_positions
from repsurgery.lm.steer.row_steering import as_steering
from repsurgery.origin import ChosenStrength
from repsurgery.steering.in_force import InForce, strength_in_force

__all__ = ["Opened", "open_steering", "open_steerings", "recognised"]


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A steering from a file, and how it is used.

    Attributes
    ----------
    function : SteeringFunction
        The steering in the file; its origin holds the strength and the positions at which it is used.
    site : str
        Where it is used.
    site_known : bool
        Whether the caller or the file names the site. Otherwise it is "final", which may not be where it was fitted.
    unmeasured : str
        A sentence, where the file holds a measured effect that does not apply to this use; else empty.
    force : InForce
        The strength at which it is used, and what to say of it.
    """

    function: rs.SteeringFunction
    site: str
    site_known: bool
    unmeasured: str
    force: InForce

    @property
    def steering(self) -> dict[str, rs.SteeringFunction]:
        """The steering as `lm.steer` and `lm.generate` take it."""
        return {self.site: self.function}

    def warn_about_strength(self) -> None:
        """Warn where the strength is far from what was measured or priced; see `strength_in_force`."""
        self.force.warn()

    def warn_about_chat(self, *, chat: bool) -> None:
        """Warn where the steering was fitted through a chat template and is used without one, or the other way."""
        fitted = self.function.origin.in_chat
        if fitted is None or fitted == chat:
            return
        was, now = ("in a chat", "without one: add --chat") if fitted else ("on plain texts", "in a chat")
        warn_caller(
            f"The steering for {self.site!r} was fitted {was} and is used {now}; its effect there is not known.",
            OriginWarning,
        )

    @property
    def words(self) -> str:
        """A phrase that gives site, strength and positions."""
        guess = "" if self.site_known else " (the file names no site)"
        how = self.function.origin
        return f"at {self.site}{guess}, strength {how.strength:g}, positions {how.positions}"


def open_steerings(
    files: Sequence[str | os.PathLike[str]],
    *,
    sites: Sequence[str] = (),
    strength: float | None = None,
    positions: Positions | None = None,
    kl_budget: float | None = None,
    scale: float = 1.0,
) -> list[Opened]:
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
) -> Opened:
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
    there, where = place or "final", (positions and check_positions(positions)) or origin.positions or "all"
    measured = origin.revised(site=origin.site or there)
    force = strength_in_force(function, strength, scale)
    used = origin.revised(strength=ChosenStrength(force.strength), positions=where)
    unmeasured = "" if function.outcome is None else _differences(measured, used.revised(site=there))
    return Opened(function.with_origin(used), there, place is not None, unmeasured, force)


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


def recognised(opened: Sequence[Opened], model: nn.Module) -> list[Opened]:
    """Return the same steerings after one comparison of the weights of ``model`` with those each was fitted on."""
    functions = compare_weights(model, [(one.site, one.function) for one in opened])
    return [replace(one, function=function) for one, function in zip(opened, functions, strict=True)]
