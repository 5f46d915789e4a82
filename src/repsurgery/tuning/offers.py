"""What plug-ins offer to a search: their candidates, fitted on all prompts and on each half of them."""

import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from repsurgery.errors import DataError, PluginWarning, SurgeryError
from repsurgery.origin import UNKNOWN
from repsurgery.steering.function import SteeringFunction
from repsurgery.tuning.candidates import CANDIDATES, Candidate, Gating, Method
from repsurgery.tuning.evidence import Evidence

__all__ = ["Offer", "offered_function", "offers", "steers_everything"]

MOST = 1000
"""Candidates that a plug-in may offer at one site."""


class _UnsuitableError(Exception):
    """What a plug-in offers is not what a search can race."""


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """A candidate with its steering function at strength 1.

    Attributes
    ----------
    candidate : Candidate
    function : SteeringFunction
    half : function of 0 or 1, or None
        It returns the function that was fitted on that half of the prompts; None where there is none.
    """

    candidate: Candidate
    function: SteeringFunction
    half: Callable[[int], SteeringFunction] | None = None


def offers(evidence: Evidence, sites: Sequence[str], taken: Collection[str]) -> list[Offer]:
    """Return the candidates of plug-ins at ``sites``, each with those of both halves where both have its name.

    Parameters
    ----------
    evidence : Evidence
    sites : sequence of str
    taken : collection of str
        Names of other candidates.

    Warns
    -----
    PluginWarning
        A plug-in cannot be imported, raises an error, or offers something else than named steering functions of the
        width of the site; it is left out of the search.

    Guarantees
    ----------
    A broken plug-in gives one warning that names it, and the search goes on without it
    (test_a_broken_plugin_is_named_once_and_the_search_goes_on).
    """
    own, found = CANDIDATES.own(), []
    names = {(site, name) for site in sites for name in taken}
    for plugin in CANDIDATES:
        function = own[plugin] if plugin in own else CANDIDATES[plugin]
        if isinstance(function, Method | Gating):
            continue
        try:
            new = [offer for site in sites for offer in _offers_at(plugin, function, evidence, site)]
            if clash := sorted(names & {_key(offer) for offer in new}):
                at, text = clash[0]
                raise _UnsuitableError(f"At {at!r} it names a candidate {text!r}, as another one is called.")
        # a plug-in is foreign code: whatever it raises must not stop the search
        except (Exception, SystemExit) as error:
            text = str(error) if isinstance(error, _UnsuitableError) else f"It raised {type(error).__name__}: {error}"
            warnings.warn(
                f"The plug-in {plugin!r} (repsurgery.candidates) is left out of this search. {text}",
                PluginWarning,
                stacklevel=2,
            )
            continue
        found += new
        names |= {_key(offer) for offer in new}
    return found


def offered_function(candidate: Candidate, evidence: Evidence) -> SteeringFunction:
    """Return the function of a plug-in's candidate, fitted on ``evidence``.

    Raises
    ------
    ParameterError
        The plug-in is not installed.
    DataError
        It offers no such candidate.
    """
    c = candidate
    plugin = CANDIDATES[c.method]
    try:
        function, problem = _named(plugin, evidence, c.site).get(c.text), ""
    except _UnsuitableError as error:
        function, problem = None, str(error)
    if function is None:
        raise DataError(
            f"The plug-in {c.method!r} (repsurgery.candidates) offers no candidate {c.text!r} at {c.site!r} any more. "
            f"{problem} Install the version of it that did, or run tune without --lock."
        )
    return function


def steers_everything(function: SteeringFunction) -> bool:
    """Return whether one map steers every vector."""
    return len(function.maps) == 1 and function.steers_all


def _key(offer: Offer) -> tuple[str, str]:
    return offer.candidate.site, offer.candidate.text


def _offers_at(plugin: str, function: Any, evidence: Evidence, site: str) -> list[Offer]:
    whole = _named(function, evidence, site)
    halves = [_half(function, evidence, number, site) for number in (0, 1)] if evidence.has_gradients else []
    found = []
    for text, fitted in whole.items():
        both = [half[text] for half in halves if text in half]
        # what is behind a gate does not move every vector along one shift
        known = len(both) == 2 and all(map(steers_everything, (fitted, *both)))
        half = both.__getitem__ if known else None
        found.append(Offer(Candidate(site, plugin, "evidence", text=text), fitted, half))
    return found


def _half(function: Any, evidence: Evidence, number: int, site: str) -> dict[str, SteeringFunction]:
    try:
        return _named(function, evidence.half(number), site)
    except SurgeryError:  # half of the prompts may be too few for a fit
        return {}


def _named(function: Any, evidence: Evidence, site: str) -> dict[str, SteeringFunction]:
    """Return what a plug-in offers at a site, by name; raise an error where that is of another kind."""
    width, found = evidence.fisher(site).dim, dict[str, SteeringFunction]()
    for pair in islice(function(evidence, site), MOST + 1):
        match pair:
            case (str(text), SteeringFunction() as steering):
                pass
            case _:
                raise _UnsuitableError(
                    f"At {site!r} it gave {pair!r:.60}; each candidate must be a pair of a name and a SteeringFunction."
                )
        if not text.strip() or not text.isprintable() or text in found:
            raise _UnsuitableError(
                f"At {site!r} it names a candidate {text!r}; a name is one line of text, and of one candidate."
            )
        if steering.dim != width:
            raise _UnsuitableError(f"At {site!r} {text!r} has {steering.dim} features; the site has {width}.")
        found[text] = steering.with_origin(UNKNOWN).with_price(None).with_outcome(None)
    if len(found) > MOST:
        raise _UnsuitableError(f"At {site!r} it offers more than {MOST} candidates. Offer the most promising ones.")
    return found
