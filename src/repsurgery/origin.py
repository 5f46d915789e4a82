"""`Origin`: the model, site and data that a steering was fitted on, and its intended use."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from repsurgery.arrays import check_finite
from repsurgery.errors import FileFormatError, ParameterError

__all__ = ["FOREIGN", "IN_CHAT", "POSITIONS", "UNKNOWN", "ChosenStrength", "Origin", "check_scale", "finite_strength"]

POSITIONS = ("all", "generated", "prompt", "last", "assistant")
"""The positions that a steering may apply to; `repsurgery.lm.steer.steer` explains them."""

IN_CHAT = " in chat"
"""The end of the pooling where texts were read through a chat template, as in "last in chat"; older versions of this
package show it and read the file."""

FOREIGN = "foreign, read from "
"""The beginning of the data of a steering that another program made; older versions of this package show it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a steering belongs; None means unknown. It is stored in the header of a saved file.

    Attributes
    ----------
    model : str or None
        Embedded name, hub id, or the last part of a folder's path.
    configuration : str or None
        Digest of the model's architecture: family, sizes, and every other setting besides the weights that
        determines a state.
    fingerprint : str or None
        Digest of the model's weights, whatever their dtype.
    dtype : str or None
        The dtype in which the model ran.
    site, pooling : str or None
        Where its states were read, and from which tokens of a text; see `repsurgery.lm.read.extract`. The pooling ends
        in `IN_CHAT` where the texts were read through a chat template.
    positions : {"all", "generated", "prompt", "last", "assistant"} or None
        Which positions are steered unless the caller specifies others.
    strength : float or None
        The strength, unless the caller specifies another. Maps are always stored at strength 1.
    data : str or None
        Digest of the texts and labels, or of the moments; it begins with `FOREIGN` where another program made the
        steering.
    licence : str or None
        A note on the terms of model and data.

    Guarantees
    ----------
    An origin changes neither the digest of a steering nor its certificate
    (test_the_origin_travels_and_leaves_digest_and_certificate_alone).
    """

    model: str | None = None
    configuration: str | None = None
    fingerprint: str | None = None
    dtype: str | None = None
    site: str | None = None
    pooling: str | None = None
    positions: str | None = None
    strength: float | None = None
    data: str | None = None
    licence: str | None = None

    def __post_init__(self) -> None:
        for name, value in self.known().items():
            if name == "strength":
                object.__setattr__(self, name, finite_strength(value))
            elif not isinstance(value, str) or not value.strip():
                raise ParameterError(f"The origin's {name} is {value!r}; it must be a string, or None if unknown.")
        if self.positions not in (None, *POSITIONS):
            raise ParameterError(f"positions is {self.positions!r}; it must be one of {list(POSITIONS)}, or None.")

    @property
    def in_chat(self) -> bool | None:
        """Whether it was fitted through a chat template; None if unknown."""
        return None if self.pooling is None else self.pooling.endswith(IN_CHAT)

    @property
    def foreign(self) -> bool:
        """Whether another program made the steering, see `repsurgery import`."""
        return self.data is not None and self.data.startswith(FOREIGN)

    def known(self) -> dict[str, Any]:
        """Return the fields that are not None, by name."""
        return {name: value for name, value in self.to_dict().items() if value is not None}

    def to_dict(self) -> dict[str, Any]:
        """Return every field by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def use(self) -> tuple[Any, ...]:
        """Return what decides the effect of given maps: model, site, positions and strength.

        Where positions or strength are None, they are "all" and 1, as they are used.
        """
        where = self.model, self.configuration, self.fingerprint, self.site
        return *where, self.positions or "all", self.effective_strength()

    def effective_strength(self, strength: float | None = None, scale: float = 1.0) -> float:
        """Return the strength at which maps of this origin are applied: the strength in force times ``scale``.

        The strength in force is the one given, else that of this origin, else 1. Everything that applies a steering
        computes its strength here.

        Raises
        ------
        ParameterError
            The strength, the scale or their product is not one finite number.

        Examples
        --------
        >>> import repsurgery as rs
        >>> rs.Origin(strength=0.25).effective_strength(scale=2), rs.Origin().effective_strength(0.5, scale=-1)
        (0.5, -0.5)
        """
        given = next(value for value in (strength, self.strength, 1.0) if value is not None)
        in_force, times = finite_strength(given), check_scale(scale)
        if times == 1:
            return in_force
        if not math.isfinite(in_force * times):
            raise ParameterError(
                f"strength {in_force:g} times scale {times:g} is not a finite number. Lower the scale."
            )
        return in_force * times + 0.0  # a scale of 0 gives no negative zero

    def together(self, inner: "Origin") -> "Origin":
        """Return the origin, without strength, of maps that act at once after the maps of ``inner``.

        Raises
        ------
        ParameterError
            The two belong to different models, sites or positions, so that no one place has both of them.
        """
        site = _common("site", self.site, inner.site)
        _common("positions", self.positions or "all", inner.positions or "all")
        positions = self.positions or inner.positions
        alike = {name: getattr(self, name) for name in _EQUAL if getattr(self, name) == getattr(inner, name)}
        notes = [note for note in dict.fromkeys((inner.licence, self.licence)) if note is not None]
        licence = "; ".join(notes) or None
        return Origin(**_model(self, inner), site=site, positions=positions, licence=licence, **alike)

    @classmethod
    def from_header(cls, stored: Any) -> "Origin":
        """Return the origin stored in a file's header, or raise `FileFormatError`; older files have None."""
        if stored is None:
            return UNKNOWN
        if not isinstance(stored, Mapping):
            raise FileFormatError(f"The file's origin is a {type(stored).__name__}, not a table. Write the file again.")
        strange = sorted(set(stored) - {field.name for field in fields(cls)})
        if strange:
            raise FileFormatError(f"The file's origin holds {strange[:3]}, unknown to this repsurgery. Upgrade it.")
        try:
            return cls(**stored)
        except ParameterError as error:
            raise FileFormatError(f"The file's origin cannot be read. {error} Write the file again.") from error

    def revised(self, origin: "Origin | None" = None, /, **facts: Any) -> "Origin":
        """Return ``origin`` (or this one) with some ``facts`` replaced."""
        if origin is not None and not isinstance(origin, Origin):
            raise ParameterError(f"with_origin got a {type(origin).__name__}; it takes an Origin, or its fields.")
        strange = sorted(set(facts) - {field.name for field in fields(self)})
        if strange:
            known = ", ".join(field.name for field in fields(self))
            raise ParameterError(f"An origin has no {' and no '.join(strange)}; it has {known}.")
        return replace(self if origin is None else origin, **facts)


class ChosenStrength(float):
    """A strength that a price chose, or of which the caller was already told: it needs no warning.

    It is an ordinary number otherwise; arithmetic and files keep the number alone.
    """

    __slots__ = ()


def finite_strength(value: Any) -> float:
    """Return ``value`` as a float; raise a `ParameterError` unless it is one finite number."""
    finite = check_finite("strength", value, needed="one finite number (0 = unchanged, 1 = the map)")
    return value if isinstance(value, ChosenStrength) else finite


def check_scale(value: Any) -> float:
    """Return ``value`` as a float; raise a `ParameterError` unless it is one finite number."""
    return check_finite("scale", value, needed="one finite number (1 = the strength in force, 2 = twice that)")


_EQUAL = ("dtype", "pooling", "data")
"""What two origins share only where it is equal."""


def _model(outer: Origin, inner: Origin) -> dict[str, Any]:
    """Return what is known of the one model of both origins, or raise where there are two."""
    prints = outer.fingerprint, inner.fingerprint
    name = inner.model if outer.model is None else outer.model
    configuration = _common("configuration", outer.configuration, inner.configuration)
    if None in prints or outer.fingerprint != inner.fingerprint:  # equal weights may have any names
        # a hub id and a folder of the same name count as the same model
        _common("model", *(one.model and one.model.split("/")[-1] for one in (outer, inner)))
    # float16 and bfloat16 round differently, so their weights cannot be compared
    if outer.dtype != inner.dtype and "float16" in (outer.dtype, inner.dtype) and None not in prints:
        return {"model": name, "configuration": configuration}
    return {"model": name, "configuration": configuration, "fingerprint": _common("fingerprint", *prints)}


def _common(name: str, outer: Any, inner: Any) -> Any:
    """Return the value that is known of two; raise where both are known and differ."""
    if None not in (outer, inner) and outer != inner:
        raise ParameterError(
            f"{name} is {outer!r:.40} in this steering and {inner!r:.40} in the one before it, so no single steering "
            "acts like the two. Steer with nested blocks of lm.steer, or, for vectors alone, compose them without "
            "origin: with_origin(rs.Origin())."
        )
    return inner if outer is None else outer


UNKNOWN = Origin()
"""The origin with no known field, used for files without an origin and for bare maps."""
