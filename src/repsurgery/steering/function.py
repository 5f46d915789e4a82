"""`SteeringFunction`: maps and a gate, frozen together with their certificate."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from repsurgery.affine import AffineMap
from repsurgery.affine.algebra import check_strength
from repsurgery.arrays import Label, Mask, Matrix, Rows, check_labels, check_rows, output_dtype, require_finite
from repsurgery.cards import Card, Shown
from repsurgery.certificates import Outcome, Verification
from repsurgery.certificates.kinds import AnyCertificate
from repsurgery.certificates.verify import verify
from repsurgery.errors import LabelError, NonFiniteError, ParameterError, ShapeError, SurgeryError
from repsurgery.files import digest_of
from repsurgery.gates import AlwaysGate, ClassifierGate, Gate
from repsurgery.gates.base import checked_weights, columns_of
from repsurgery.origin import UNKNOWN, ChosenStrength, Origin, finite_strength
from repsurgery.price import Price
from repsurgery.steering.function_checks import labels_behind, require_consistent, several_maps_behind
from repsurgery.steering.pretrained import Shareable, steering_at
from repsurgery.steering.shown import function_card

__all__ = ["EVERYBODY", "SteeringFunction"]

EVERYBODY = None
"""The key of a map that applies to every class (LEACE); no class can have this label."""


@dataclass(frozen=True, slots=True, eq=False)
class SteeringFunction(Shareable, Shown):
    """s(h) = h + Σ_c w_c(h) (map_c(h) − h), with the weights w of the gate.

    Behind a hard gate that is map_c(h) where the gate assigns h to the source concept c, and h itself elsewhere. A map
    under None, which applies to every class, is not affected by a hard gate. Weights of exactly 0 and 1 leave no
    rounding behind.

    Attributes
    ----------
    maps : mapping of label to AffineMap
        Or of None to the one map that applies to every class.
    gate : Gate
    classes : tuple of labels
        Every concept known at fit; labels passed to a call must be among them.
    certificate : Certificate, ContinuousCertificate, EffectCertificate or None
    origin : Origin
        Model and site that the maps belong to, and their intended use there; see `with_origin`.
    price : Price or None
        What the strength for a budget of nats follows from; see `with_price`.
    outcome : Outcome or None
        The effect and price that were measured of these maps, used as the origin states; see `with_outcome`.

    Guarantees
    ----------
    The mask is computed from the original vectors, and rows outside it are returned bit for bit
    (test_rows_outside_the_mask_come_back_bit_for_bit).
    Behind a soft gate rows of weight 0 are returned bit for bit, and those of weight 1 as their map returns them
    (test_weights_of_0_and_1_leave_no_rounding_behind).
    """

    maps: Mapping[Label | None, AffineMap]
    gate: Gate = field(default_factory=AlwaysGate)
    classes: tuple[Label, ...] = ()
    certificate: AnyCertificate | None = None
    origin: Origin = UNKNOWN
    price: Price | None = None
    outcome: Outcome | None = None

    def __post_init__(self) -> None:
        require_consistent(self)
        object.__setattr__(self, "maps", MappingProxyType(dict(self.maps)))

    @classmethod
    def from_pretrained(
        cls, place: str | os.PathLike[str], *, revision: str | None = None, token: str | bool | None = None
    ) -> "SteeringFunction":
        """Return the steering function in a folder of `save_pretrained`, or in a repository on the hub.

        Parameters
        ----------
        place : path or str
            A folder, or OWNER/NAME on the hub; a folder of that name comes first.
        revision : str or None
            Branch, tag or commit, for a repository; a commit makes sure that the file never changes.
        token : str, bool or None
            None is the token in HF_TOKEN or of the login.

        Raises
        ------
        HubError
            The hub cannot be reached, has no such repository, or refuses access.
        FileFormatError
            The file was altered, or is of another kind.
        """
        return steering_at(place, revision=revision, token=token)

    @property
    def dim(self) -> int:
        """The number of features d."""
        return next(iter(self.maps.values())).dim

    def __call__(self, X: Any, concept: Any = None) -> Rows:
        """Steer rows (n, d): by the gate, or by the given concept labels (n,)."""
        rows = check_rows(X, dim=self.dim, caller="This steering function")
        require_finite(rows, caller="This steering function")
        if concept is None and not self.gate.hard:
            return self._softly(rows, self.weights(rows))
        masks = self.masks(rows, concept)
        out = np.array(rows, dtype=output_dtype(rows))
        for label, mask in masks.items():
            if mask.all():
                return self.maps[label].apply(rows)
            if mask.any():
                out[mask] = self.maps[label].apply(rows[mask])
        return out

    def _softly(self, rows: Rows, weights: Matrix) -> Rows:
        out = np.array(rows, dtype=output_dtype(rows))
        # rows of one map at weight 1 are that map, and rows without a weight stay as they are
        steered = weights != 0
        whole = (weights == 1) & (steered.sum(axis=1, keepdims=True) == 1)
        part = steered.any(axis=1) & ~whole.any(axis=1)
        for j, m in enumerate(self.maps.values()):
            if whole[:, j].any():
                out[whole[:, j]] = m.apply(rows[whole[:, j]])
        if part.any():
            h = rows[part].astype(np.float64)
            moved = h.copy()
            with np.errstate(over="ignore", invalid="ignore"):
                for w, m in zip(weights[part].T, self.maps.values(), strict=True):
                    some = w != 0
                    moved[some] += w[some, None] * (m.apply(h[some]) - h[some])
                out[part] = moved
            if not np.isfinite(out[part]).all():
                raise NonFiniteError(
                    f"Steering behind the soft gate gives values beyond {out.dtype}. Pass float64 rows, or lower the "
                    "strength."
                )
        return out

    def weights(self, X: Rows, concept: Any = None) -> Matrix:
        """Return how strongly each map steers each of the checked rows, (n, len(maps)), in the order of ``maps``.

        Guarantees
        ----------
        They say what a call does: h + Σ_c w_c (map_c(h) − h) (test_a_call_is_the_sum_of_the_weighted_maps).
        """
        if concept is not None or self.gate.hard:
            return np.stack(list(self.masks(X, concept).values()), axis=1).astype(np.float64)
        W = checked_weights(self.gate, X)
        if W.shape[1] == len(self.maps) == 1:
            return W
        if W.shape[1] != len(self.gate.classes):
            raise several_maps_behind(self)
        return W @ columns_of(self.gate.classes, self.maps)

    def masks(self, X: Rows, concept: Any = None) -> dict[Label | None, Mask]:
        """Return, per map, which of the checked rows it steers."""
        if EVERYBODY in self.maps and concept is not None and self.classes:
            self.assign(X, concept)  # the labels change nothing here, but unknown ones must raise
        if EVERYBODY in self.maps or (concept is None and self.gate.reads == "nothing"):
            return {label: np.ones(len(X), dtype=bool) for label in self.maps}
        assigned = self.assign(X, concept)
        return {label: assigned == label for label in self.maps}

    def assign(self, X: Rows, concept: Any = None) -> NDArray[Any]:
        """Return the concept of each row: the given labels, or those that the gate assigns."""
        if concept is None:
            return np.array(self.gate.classes or self.classes)[self.gate.codes(X)]
        labels, codes = check_labels(concept, len(X), caller="This steering function")
        unknown = [label for label in labels if label not in self.classes]
        if unknown:
            raise LabelError(f"Unknown concept labels {unknown[:5]}; fitted were {list(self.classes)}.")
        return np.array(labels)[codes]

    def inverse(self, X: Any, concept: Any = None) -> Rows:
        """Undo the steering of rows (n, d).

        This requires knowing which rows were steered: pass the original ``concept``, or use ``gate="always"``.
        """
        if not self.gate.hard:
            raise SurgeryError(
                "Vectors that were steered behind a soft gate do not show how strongly. Keep the original vectors, or "
                "fit with gate='always'."
            )
        if concept is None and self.gate.reads != "nothing":
            raise SurgeryError(
                "Steered vectors do not show which of them were steered. "
                "Pass concept= with the labels by which they were steered, or fit with gate='always'."
            )
        undo = replace(
            self, maps={label: m.inverse() for label, m in self.maps.items()}, certificate=None, outcome=None
        )
        return undo(X, concept)

    def after(self, inner: "SteeringFunction") -> "SteeringFunction":
        """Return h ↦ self(inner(h)), each at the strength in its origin, without certificate and outcome.

        Both must have one map that steers every vector. The strengths are folded into the map, which then acts at
        strength 1.

        Raises
        ------
        ParameterError
            One of them acts behind a gate, or their origins name different models, sites or positions.

        Guarantees
        ----------
        It acts like nested blocks of `lm.steer`, ``inner`` outside and this function inside
        (test_a_composition_acts_like_nested_blocks, test_what_nested_blocks_do_at_two_places_is_refused).

        Examples
        --------
        >>> import numpy as np, repsurgery as rs
        >>> shift, double = rs.Translation([1.0]), rs.Diagonal([2.0], [0.0])
        >>> rs.SteeringFunction({None: double}).after(rs.SteeringFunction({None: shift}))(np.array([[3.0]]))
        array([[8.]])
        """
        if not (self.steers_all and inner.steers_all):
            raise ParameterError(
                "Behind a gate two steerings do not compose to one map. Fit both with gate='always', or steer with "
                "nested blocks of lm.steer."
            )
        origin = self.origin.together(inner.origin)
        ((label, outer),), (first,) = self._as_used().maps.items(), inner._as_used().maps.values()
        maps = {label: outer @ first}
        return replace(self, maps=maps, certificate=None, origin=origin, price=None, outcome=None)

    def _as_used(self) -> "SteeringFunction":
        strength = self.origin.effective_strength()
        return self if strength == 1 else self.at(strength)

    @property
    def steers_all(self) -> bool:
        """Whether one map steers every vector, whatever the gate says, if a call passes no labels."""
        return self.gate.reads == "nothing" or (EVERYBODY in self.maps and self.gate.hard)

    @property
    def needs_labels(self) -> bool:
        """Whether only the labels that a call passes decide which vectors are steered."""
        return self.gate.reads == "labels" and EVERYBODY not in self.maps

    def behind(self, gate: Gate, *, source: Label | None = None) -> "SteeringFunction":
        """Return the same maps behind ``gate``, a hard or a soft one, with the same origin.

        Certificate, price and outcome are left out, because they hold for what this function does behind its own gate;
        compute them again where they are needed. Behind its own gate the function is returned as it is.

        Parameters
        ----------
        gate : Gate
            See `build_gate`, `calibrate_gate` and `calibrate_soft_gate`; `gates.AlwaysGate()` takes a gate away.
        source : label or None
            The class of the gate that the one map of this function serves. A map under None, such as that of LEACE,
            would not be affected by a gate that distinguishes classes, so it needs a source there. A map that already
            serves a class keeps it where this is None.

        Raises
        ------
        LabelError
            The gate does not have the class that a map serves.
        ParameterError
            A map for every class, or several maps, and a source that is missing or superfluous.

        Guarantees
        ----------
        The last gate counts (test_behind_two_gates_is_behind_the_last).
        What was measured behind another gate is not carried along (test_behind_a_gate_keeps_the_origin_alone).

        Examples
        --------
        >>> import numpy as np, repsurgery as rs
        >>> gate = rs.build_gate("nearest-mean", [[0.0], [1.0], [9.0], [10.0]], ["clean", "clean", "toxic", "toxic"])
        >>> shift = rs.SteeringFunction({None: rs.Translation([-8.0])})
        >>> shift.behind(gate, source="toxic")(np.array([[1.0], [9.0]])).tolist()
        [[1.0], [1.0]]
        """
        if not isinstance(gate, Gate):
            raise ParameterError(
                f"behind got a {type(gate).__name__}; it takes a fitted gate, such as rs.build_gate('lda', X, z)."
            )
        served = labels_behind(self, gate, source)
        if gate is self.gate and served == list(self.maps):
            return self
        maps = dict(zip(served, self.maps.values(), strict=True))
        known = all(name in self.classes for name in (*gate.classes, *served) if name is not EVERYBODY)
        classes = self.classes if known and self.classes else gate.classes
        return SteeringFunction(maps, gate, classes, origin=self.origin)

    def interpolate(self, t: float) -> "SteeringFunction":
        """Return this function at strength ``t`` on each map's geodesic, without certificate and outcome.

        The strength in its origin is dropped too, because it refers to the fitted map.
        """
        # where the effect was measured or a price chose it, a strength beyond the geodesic needs no warning
        measured = self.outcome is not None and t == self.origin.strength
        return self.at(t if measured or isinstance(t, ChosenStrength) else check_strength(t))

    def at(self, strength: float) -> "SteeringFunction":
        """Return this function at any finite strength, like `interpolate` but without a warning."""
        t = finite_strength(strength)
        maps = {k: m.interpolate(t) for k, m in self.maps.items()}
        return replace(self, maps=maps, certificate=None, origin=self.origin.revised(strength=None), outcome=None)

    def astype(self, dtype: DTypeLike) -> Self:
        """Return this function with its maps rounded to ``dtype``, without outcome; `verify` then raises."""
        return replace(self, maps={k: m.astype(dtype) for k, m in self.maps.items()}, outcome=None)

    def verify(self, X: Any = None, z: Any = None, *, groups: Any = None) -> Verification:
        """Raise `CertificateError` if the bytes, a cast or unweighted rows contradict the claims; see `rs.verify`."""
        return verify(self, X, z, groups=groups)

    def digest(self) -> str:
        """Return the SHA-256 of maps and gate."""
        return digest_of(*self.parts())

    def parts(self, *, saving: bool = False) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return the arrays and the JSON header that define this function (without its certificate)."""
        arrays: dict[str, NDArray[Any]] = {}
        kinds = []
        for i, (label, m) in enumerate(self.maps.items()):
            kinds.append({"label": label, "kind": m.kind})
            arrays |= {f"map.{i}.{name}": array for name, array in m.arrays().items()}
        if saving or not isinstance(self.gate, ClassifierGate):
            arrays |= {f"gate.{name}": array for name, array in self.gate.arrays().items()}
        gate = {"kind": self.gate.kind, "classes": list(self.gate.classes)}
        return arrays, {"maps": kinds, "gate": gate, "classes": list(self.classes)}

    def with_origin(self, origin: Origin | None = None, /, **facts: Any) -> Self:
        """Return this function with another ``origin``, or with some facts of its own origin replaced.

        An outcome is dropped where the model, site, positions or strength change, because it was measured there.

        Examples
        --------
        >>> import repsurgery as rs
        >>> shift = rs.SteeringFunction({None: rs.Translation([1.0, 2.0])})
        >>> shift.with_origin(model="smollm2-135m", site="layers.15").origin.site
        'layers.15'
        """
        revised = self.origin.revised(origin, **facts)
        return replace(self, origin=revised, outcome=self.outcome if revised.use() == self.origin.use() else None)

    def with_price(self, price: Price | None) -> Self:
        """Return this function with what its price follows from; `lm.price` computes it."""
        if price is not None and (not isinstance(price, Price) or price.fisher.dim != self.dim):
            raise ShapeError(f"with_price takes a Price of {self.dim} features, or None. Compute it at the same site.")
        return replace(self, price=price)

    def with_outcome(self, outcome: Outcome | None) -> Self:
        """Return this function with what was measured of it; set the origin first, because a new one drops it.

        Guarantees
        ----------
        It is kept by what leaves maps and use as they are, and dropped by everything else
        (test_an_outcome_is_dropped_with_what_it_was_measured_of).
        """
        return replace(self, outcome=outcome)

    def sealed(self, certificate: AnyCertificate) -> "SteeringFunction":
        """Return this function with ``certificate``, which receives the digest of its maps and gate."""
        return replace(self, certificate=certificate.sealed(self.digest()))

    def _card(self) -> Card:
        return function_card(self)

    def __reduce__(self) -> tuple[Any, ...]:
        facts = (self.certificate, self.origin, self.price, self.outcome)
        return SteeringFunction, (dict(self.maps), self.gate, self.classes, *facts)
