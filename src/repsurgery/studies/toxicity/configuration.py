"""`Configuration`: one way to steer, written as a line of words."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin, get_type_hints

from repsurgery.errors import ParameterError
from repsurgery.gates.base import GATES
from repsurgery.moments.shrinkage import SHRINKAGES, Alpha, check_shrinkage, parse_alpha
from repsurgery.registry import Registry, reads
from repsurgery.steering.base import METHODS, method_of_rows
from repsurgery.studies.toxicity.generators import GENERATORS, GeneratorLine, parse_generator_line
from repsurgery.studies.toxicity.tuned import TUNED, TunedLine, parse_tuned_line

__all__ = ["Configuration", "Line", "needed_sites", "parse_configuration", "parse_line"]

Scope = Literal["selective", "all"]
Fit = Literal["last", "tokens", "on-policy"]
Credit = Literal["text", "step"]
WITH_MEANS = "-mean"
"""The end of the name of a method that is fitted from gradients, to which the difference of the means is added."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """How one row of the table was steered.

    Attributes
    ----------
    method : str
        A name of `METHODS`, such as "natural", the shift with the greatest effect per KL divergence; or "natural-mean",
        the sum of that shift and of the difference of the on-policy means, at equal price.
    scope : {"selective", "all"}
        Steer only the vectors that the gate classifies as toxic, or every vector.
    fit : {"last", "tokens", "on-policy"}
        The vectors on which the map is fitted: the last token of each labelled text (the paper), every token of it, or
        every step of the model's own continuations of training prompts, labelled by the first scorer.
    gate : str
        A name of `GATES`, such as "nearest-mean", the paper's gate; or "calibrated", the discriminant direction of the
        fit with a threshold that lets the gate fire on a stated share of the clean steps of the model's own
        continuations; or "soft", the same direction with a strength that rises with its score.
    shrinkage : str
        A name of `SHRINKAGES`, for the covariances; "preset" is the paper's, with the ridge of the study.
    alpha : float or "auto"
        How far "pooled" draws the covariances of both classes together.
    strength : float
        Position on the geodesic from the identity (0) to the map (1), or beyond it.
    kl : float
        Instead of a strength, a price: the predicted KL divergence from the base in nats per token of the model's own
        continuations. 0 leaves the strength as it is.
    credit : {"text", "step"}
        Whether an on-policy step has the label of its whole text, or the label that its own credit gives it.
    rounds : int
        On-policy rounds: each but the first is written under the composition of the maps so far, and fits what is left.
    site : str
        Where in the model the steering acts.
    rows : int
        Vectors per class on which the map is fitted; 0 uses all.

    Examples
    --------
    >>> from repsurgery.experiments.toxicity import parse_configuration
    >>> parse_configuration("mimic selective fit=on-policy strength=0.5").name
    'mimic selective fit=on-policy strength=0.5'
    """

    method: str
    scope: Scope
    fit: Fit = "last"
    gate: str = "nearest-mean"
    shrinkage: str = "preset"
    alpha: Alpha = "auto"
    strength: float = 1.0
    kl: float = 0.0
    credit: Credit = "text"
    rounds: int = 1
    site: str = "final"
    rows: int = 0

    @property
    def name(self) -> str:
        """The line that `parse_configuration` reads; options that have their default are left out."""
        defaults = Configuration(self.method, self.scope)
        values = {name: getattr(self, name) for name in _OPTIONS if getattr(self, name) != getattr(defaults, name)}
        return " ".join([self.method, self.scope, *(f"{name}={_word(value)}" for name, value in values.items())])

    @property
    def from_gradients(self) -> bool:
        """Whether it is fitted from credits and a Fisher matrix instead of moments."""
        return _from_gradients(self.method)

    @property
    def choices(self) -> dict[str, Any]:
        """Every option by name, as it stands in a record."""
        return asdict(self)


Line = Configuration | TunedLine | GeneratorLine
"""What a line of ``configurations`` says: a steering, a search for one, or a rival of steering."""


def parse_line(words: str) -> Line:
    """Read a configuration line: a search, a registered generator with its options, or a steering."""
    first = words.split()[:1]
    if first == [TUNED]:
        return parse_tuned_line(words)
    # "base" is the row of the unsteered model, which every study has
    rival = first and first[0] != "base" and first[0] not in METHODS and first[0] in GENERATORS
    if not rival:
        _require_known(words)
    return parse_generator_line(words) if rival else parse_configuration(words)


def _require_known(words: str) -> None:
    """Raise where the first word is neither a method nor a rival, but options follow it at once, or a rival is like it.

    A steering has its scope there.
    """
    first, *others = words.split() or [""]
    if not first or first in METHODS or _from_gradients(first):
        return
    near = get_close_matches(first.lower(), [*GENERATORS, TUNED], n=1, cutoff=0.75)
    if near:
        raise ParameterError(f"{words!r} begins with {first!r}, which is unknown. Did you mean {near[0]!r}?")
    if any("=" in word for word in others[:1]):
        raise ParameterError(
            f"{words!r} begins with {first!r}, which is no rival; choose one of {', '.join(GENERATORS)}. A steering "
            f"has a scope before its options, such as 'mimic selective strength=0.5'."
        )


def parse_configuration(words: str) -> Configuration:
    """Read ``"method scope name=value ..."``."""
    head, pairs = words.split()[:2], words.split()[2:]
    if len(head) < 2:
        raise ParameterError(
            f"{words!r} is not a configuration; write a method and a scope, such as 'mimic selective'{_others()}."
        )
    values: dict[str, Any] = {"method": head[0], "scope": head[1]}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or name not in _OPTIONS or name in values:
            options = ", ".join(f"{option}=…" for option in _OPTIONS)
            raise ParameterError(f"{words!r} contains {pair!r}; after method and scope come {options}, once each.")
        values[name] = _value(words, name, value)
    for name, allowed in _CHOICES.items():
        if values.get(name, allowed[0]) not in allowed:
            raise ParameterError(f"{words!r} has {name} {values[name]!r}; choose one of {', '.join(allowed)}.")
    for name, (registry, extra) in _REGISTRIES.items():
        if name not in values or values[name] in extra or (name == "method" and _from_gradients(values[name])):
            continue
        if values[name] not in registry:
            more = [n for one in registry.unlisted() for n in (one, f"{one}{WITH_MEANS}")]
            choices = ", ".join((*more, *extra, *registry)) + (_others() if name == "method" else "")
            raise ParameterError(f"{words!r} has {name} {values[name]!r}; choose one of {choices}.")
        registry[values[name]]  # a plugin that cannot be imported raises here, before the study starts
    _require_meaning(words, values)
    return Configuration(**values)


def _from_gradients(method: str) -> bool:
    name = method.removesuffix(WITH_MEANS)
    return name in METHODS.unlisted() and METHODS[name].fitted_from == "gradients"


def _require_meaning(words: str, values: Mapping[str, Any]) -> None:
    """Raise where options contradict each other."""
    if values["scope"] == "all" and "gate" in values:
        raise ParameterError(f"{words!r} names a gate, but steers all vectors. Leave it out, or steer selectively.")
    if values.get("gate") in ("always", "labels"):
        raise ParameterError(
            f"{words!r} has gate {values['gate']!r}, which does not classify vectors. Choose another gate, or the "
            "scope all."
        )
    if "kl" in values and "strength" in values:
        raise ParameterError(f"{words!r} states a strength and a price (kl); leave one of them out.")
    on_policy = values.get("fit") == "on-policy"
    if _from_gradients(values["method"]):
        if not on_policy or values["scope"] != "all" or {"shrinkage", "alpha", "credit"} & values.keys():
            raise ParameterError(
                f"{words!r}: {values['method']} is a shift for all vectors with credit for each step. Write "
                f"'{values['method']} all fit=on-policy kl=0.1'."
            )
        if not values.get("kl"):
            raise ParameterError(f"{words!r} has no price; {values['method']} needs one, such as kl=0.1.")
    else:
        _require_shrinkage(words, values)
    if not on_policy and {"rounds", "credit"} & values.keys():
        raise ParameterError(f"{words!r} has an option of on-policy fits (rounds, credit). Add fit=on-policy.")
    if values.get("rounds", 1) > 1 and (values["scope"] != "all" or _from_gradients(values["method"])):
        raise ParameterError(f"{words!r} has several rounds; they need a method with a map for all vectors.")


def _require_shrinkage(words: str, values: Mapping[str, Any]) -> None:
    name = values.get("shrinkage", "preset")
    method = method_of_rows(values["method"])
    shrinkage = method.study_shrinkage if name == "preset" else name
    try:
        check_shrinkage(shrinkage, 0.0, values.get("alpha", "auto"))
    except ParameterError as error:
        raise ParameterError(f"{words!r}: {error}") from error
    if "alpha" in reads(SHRINKAGES[shrinkage]) and "alpha" not in method().get_params():
        raise ParameterError(
            f"{words!r} has shrinkage {name!r}, which draws the covariances of two classes together; the method "
            f"{values['method']!r} does not have such a pair. Choose another shrinkage."
        )


def needed_sites(configurations: Sequence[Configuration]) -> dict[str, list[str]]:
    """Return, for each kind of vectors, the sites at which configurations need them."""
    sites: dict[str, dict[str, None]] = {"last": {}, "tokens": {}, "on-policy": {}}
    for c in configurations:
        sites[c.fit][c.site] = None
        if c.kl or (c.scope == "selective" and c.gate in ("calibrated", "soft")):
            sites["on-policy"][c.site] = None
    return {kind: list(names) for kind, names in sites.items()}


_CHOICES: Mapping[str, tuple[str, ...]] = {
    name: get_args(hint) for name, hint in get_type_hints(Configuration).items() if get_origin(hint) is Literal
}
_REGISTRIES: Mapping[str, tuple[Registry[Any], tuple[str, ...]]] = {
    "method": (METHODS, ()),
    "gate": (GATES, ("calibrated", "soft")),
    "shrinkage": (SHRINKAGES, ("preset",)),
}
_OPTIONS = tuple(f.name for f in fields(Configuration))[2:]


def _others() -> str:
    names = ", ".join(GENERATORS)
    return f", or '{TUNED} kl=0.1' for a search" + (f", or a generator: {names}" if names else "")


_NUMBERS: Mapping[str, tuple[type[float] | type[int], str]] = {
    "strength": (float, "a number of at least 0"),
    "kl": (float, "a number of nats, at least 0"),
    "rows": (int, "0 for all, or at least 2"),
    "rounds": (int, "a whole number of at least 1"),
}


def _value(words: str, name: str, text: str) -> Any:
    if name == "alpha":
        return parse_alpha(text)
    if name not in _NUMBERS:
        return text
    kind, needed = _NUMBERS[name]
    try:
        value = kind(text)
    except ValueError:
        value = kind(-1)
    if not 0 <= value < float("inf") or (name, value) in (("rows", 1), ("rounds", 0)):
        raise ParameterError(f"{words!r} has {name} {text!r}; it must be {needed}.")
    return value


def _word(value: Any) -> str:
    return f"{value:.15g}" if isinstance(value, float) else str(value)
