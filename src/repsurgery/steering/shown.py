"""What steering functions and estimators say of themselves, and how estimators do so in scikit-learn's diagrams."""

import inspect
import reprlib
import textwrap
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator

from repsurgery.affine.shown import map_words
from repsurgery.cards import WIDTH, Card, Shown, count, line, listed, name_of, number, shortened, values
from repsurgery.gates.shown import gate_words

if TYPE_CHECKING:
    from repsurgery.origin import Origin
    from repsurgery.steering.function import SteeringFunction

__all__ = ["FOREIGN_WORDS", "ShownEstimator", "foreign_words", "function_card"]

FOREIGN_WORDS = "The steering is foreign; not certified until priced and certified."


def function_card(function: "SteeringFunction") -> Card:
    """Return the card of a steering function: what was measured of it, then its parts."""
    f = function
    title = f"Steering function on {count(f.dim, 'feature')}"
    return Card(title, _verdict(f), (*_parts(f), *_place(f.origin)))


def foreign_words(function: "SteeringFunction") -> str:
    """Return a sentence where another program made a steering that was not both priced and certified since."""
    checked = function.certificate is not None and (function.price is not None or function.outcome is not None)
    return FOREIGN_WORDS if function.origin.foreign and not checked else ""


def _verdict(f: "SteeringFunction") -> str:
    if f.outcome is not None:
        return f.outcome.words()
    if f.certificate is None:
        return foreign_words(f) or "It carries no certificate."
    verdict = f.certificate._card().verdict
    if f.gate.reads != "rows" or getattr(f.certificate, "data", None) != "fitting moments":
        return verdict
    return f"{verdict} Without labels the gate decides which rows are steered; certify(X, z) measures the rest."


def _parts(f: "SteeringFunction") -> list[tuple[str, str]]:
    shown = [f"{'every class' if label is None else name_of(label)}: {map_words(m)}" for label, m in _some(f.maps)]
    facts = [("maps", listed([*shown, *[""] * (len(f.maps) - len(shown))], 5)), ("gate", gate_words(f.gate))]
    if f.classes:
        facts.append(("classes", values(f.classes)))
    if f.certificate is not None:
        facts.append(("certificate", f"of {f.certificate.method}, digest {f.certificate.digest[:12]}…"))
    if f.price is not None:
        facts.append(("price", f"of {count(f.price.fisher.count, 'position')}"))
    return facts


def _some(maps: Any) -> list[Any]:
    return [item for item, _ in zip(maps.items(), range(6), strict=False)]


def _place(origin: "Origin") -> list[tuple[str, str]]:
    known = origin.known()
    site = [line(known["site"])] if "site" in known else []
    facts = [("fitted at", " of ".join([*site, *([line(known["model"])] if "model" in known else [])]))]
    use = [f"strength {number(known['strength'])}"] if "strength" in known else []
    use += [f"positions {known['positions']}"] if "positions" in known else []
    return [(name, value) for name, value in (*facts, ("to be used with", ", ".join(use))) if value]


class ShownEstimator(Shown, BaseEstimator):
    """Mixin: an estimator whose ``repr`` is its call, and after the fit also the verdict of its certificate.

    Guarantees
    ----------
    The HTML of a fitted estimator, alone or in a pipeline, shows the verdict, and gives no warning
    (test_the_html_of_a_fitted_estimator_shows_the_verdict).
    """

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return the card as text; scikit-learn passes ``N_CHAR_MAX``."""
        card = self._card()
        return Card(shortened(card.title, N_CHAR_MAX), card.verdict, card.facts).text()

    def _card(self) -> Card:
        call, learned = _call(self), self._learned()
        return Card(call) if learned is None else Card(call, learned.verdict, learned.facts)

    @abstractmethod
    def _learned(self) -> Card | None:
        """Return what was learned, without computing anything; None before the fit."""

    _repr_html_ = BaseEstimator._repr_html_  # the diagram, into which the card is put below

    def _html_repr(self) -> str:
        diagram: str = super()._html_repr()
        learned = self._learned()
        # scikit-learn 1.8 asks for parameters only
        asked = hasattr(BaseEstimator, "_get_fitted_attr_html")
        return diagram if learned is None or asked else f"{learned.html()}{diagram}"

    def _get_params_html(self, *args: Any, **options: Any) -> Any:
        params = super()._get_params_html(*args, **options)
        # scikit-learn parses the docstring for links that it shows only of its own estimators, and its parser warns of
        # the section "Guarantees"
        params.estimator_class = BaseEstimator
        return params

    def _get_fitted_attr_html(self, *args: Any, **options: Any) -> "_Learned":
        """Return what scikit-learn's diagram shows of a fitted estimator, also within a pipeline."""
        return _Learned(self._learned() or Card(""))


class _Learned:
    """A card where scikit-learn expects a table of fitted attributes."""

    def __init__(self, card: Card) -> None:
        self._card = card

    def __len__(self) -> int:
        return 1

    def _repr_html_inner(self) -> str:
        return self._card.html()


def _call(estimator: BaseEstimator) -> str:
    """Return the call that makes ``estimator``, with the parameters that are not the default."""
    defaults = {name: p.default for name, p in inspect.signature(type(estimator).__init__).parameters.items()}
    everything = not get_config()["print_changed_only"]
    given = estimator.get_params(deep=False).items()
    parts = [
        f"{name}={_parameter(value)}" for name, value in given if everything or repr(value) != repr(defaults[name])
    ]
    name = type(estimator).__name__
    return textwrap.fill(
        f"{name}({', '.join(parts)})", WIDTH, subsequent_indent=" " * (len(name) + 1), break_on_hyphens=False
    )


def _parameter(value: Any) -> str:
    """Return a parameter as Python writes it, shortened; arrays and objects in a few words."""
    if isinstance(value, np.ndarray) and value.ndim:
        return f"<array {value.shape}>"
    if isinstance(value, list | tuple) and len(value) <= 6:
        inner = ", ".join(name_of(part) for part in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    if isinstance(value, list | tuple | set):
        return f"[{values(value, 4)}]"
    if isinstance(value, Shown):
        return f"<{shortened(value._card().title, 60)}>"
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return name_of(value)
    return line(reprlib.repr(value))
