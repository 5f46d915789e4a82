"""A steering function on rows of states: the gate first, then the maps on the rows it selects."""

import torch

from repsurgery.affine import AffineMap, Diagonal, Translation
from repsurgery.arrays import Label
from repsurgery.errors import NonFiniteError, ParameterError, ShapeError
from repsurgery.gates import AlwaysGate, LabelsGate, SoftGate
from repsurgery.lm.steer.torch_maps import (
    TorchMap,
    TorchStrength,
    as_torch_gate,
    as_torch_map,
    compute_dtype,
    to_tensor,
)
from repsurgery.steering.function import EVERYBODY, SteeringFunction

__all__ = ["RowSteering", "as_steering"]

LARGEST = torch.finfo(torch.float64).max
GATHER_BELOW = 0.8
"""Share of gated rows below which picking them out is cheaper than mapping all rows and choosing afterwards."""


def as_steering(value: object, *, caller: str = "steer", labelled: bool = False) -> SteeringFunction:
    """Return ``value`` as a steering function: an estimator's own, a function itself, a bare map on every vector.

    ``labelled`` allows a gate that reads labels, for rows that have them.
    """
    steering = getattr(value, "steering_", value)
    if isinstance(steering, AffineMap):
        return SteeringFunction({EVERYBODY: steering})
    if not isinstance(steering, SteeringFunction):
        raise ParameterError(
            f"{caller} got a {type(value).__name__}; it takes a fitted estimator, a steering function or an affine map."
        )
    if isinstance(steering.gate, LabelsGate) and EVERYBODY not in steering.maps and not labelled:
        raise ParameterError(
            "This steering function has gate='labels', and tokens have no labels. Fit with a gate that reads vectors, "
            "such as 'nearest-mean', or pass the map itself (estimator.map_) to steer every vector."
        )
    return steering


class RowSteering:
    """Steer rows (n, d) of states in their own dtype; rows that the gate does not select return bit for bit.

    Parameters
    ----------
    steering : SteeringFunction
    name : str
        Its name in error messages.

    Attributes
    ----------
    elementwise : (scale, offset) or None
        Two tensors (d,) where every row x becomes scale ∘ x + offset; None behind a gate and for other maps.
    """

    def __init__(self, steering: SteeringFunction, *, name: str) -> None:
        self.dim = steering.dim
        self._name = name
        self._strength = TorchStrength(steering.gate) if isinstance(steering.gate, SoftGate) else None
        everybody = EVERYBODY in steering.maps or isinstance(steering.gate, AlwaysGate | SoftGate)
        self._gate = None if everybody else as_torch_gate(steering.gate)
        classes = steering.gate.classes or steering.classes
        maps = steering.maps if not everybody else {EVERYBODY: next(iter(steering.maps.values()))}
        self._maps = {_code(classes, label): as_torch_map(m) for label, m in maps.items()}
        self._only = next(iter(self._maps.values()))
        whole = everybody and self._strength is None
        self.elementwise = _elementwise(next(iter(maps.values()))) if whole else None

    def __call__(self, X: torch.Tensor) -> torch.Tensor:
        """Return steered rows; ``X`` itself is not written to."""
        return self.counted(X)[0]

    def counted(self, X: torch.Tensor) -> tuple[torch.Tensor, float]:
        """Return steered rows, and how many of them the gate assigned to a map; ``X`` itself is not written to.

        Behind a soft gate the sum of the strengths takes the place of the number of rows.
        """
        if X.shape[1] != self.dim:
            raise ShapeError(
                f"{self._name} was made for {self.dim} features; the state there has {X.shape[1]}. "
                "Fit it on vectors extracted at this site of this model."
            )
        n = X.shape[0]
        if self._strength is not None:
            return self._softly(X, self._strength(X))
        if self._gate is None:
            return self._mapped(X, self._only), n
        if n == 1:
            m = self._maps.get(self._gate.of_one(X))
            return (X, 0) if m is None else (self._mapped(X, m), 1)
        codes = self._gate(X)
        out, count = X, 0.0
        for code, m in self._maps.items():
            out, gated = self._choose(X, out, codes == code, m)
            count += gated
        return out, count

    def _softly(self, X: torch.Tensor, strength: torch.Tensor) -> tuple[torch.Tensor, float]:
        h = X.to(compute_dtype(X.dtype))
        t = strength.to(h.dtype)[:, None]
        Y = self._mapped(X, self._only, strength != 0, round_to=h.dtype)
        # strengths 0 and 1 leave no rounding behind: such rows are the vector itself, and its map
        moved = torch.where(t == 1, Y, h + t * (Y - h)).to(X.dtype)
        # the map is in range, but a strength above 1 reaches beyond it
        beyond = ~torch.isfinite(moved.detach()).all(dim=1) & (strength != 0)
        if bool(beyond.any()):
            self._refuse(X[beyond])
        return torch.where(strength[:, None] == 0, X, moved), float(strength.detach().sum())

    def _choose(self, X: torch.Tensor, out: torch.Tensor, mask: torch.Tensor, m: TorchMap) -> tuple[torch.Tensor, int]:
        rows = mask.nonzero().squeeze(1)
        n, gated = X.shape[0], rows.shape[0]
        if gated == 0:
            return out, 0
        if gated == n:
            return self._mapped(X, m), n
        if m.cheap or gated >= GATHER_BELOW * n:
            return torch.where(mask[:, None], self._mapped(X, m, mask), out), gated
        return out.index_copy(0, rows, self._mapped(X.index_select(0, rows), m)), gated

    def _mapped(
        self,
        X: torch.Tensor,
        m: TorchMap,
        mask: torch.Tensor | None = None,
        *,
        round_to: torch.dtype | None = None,
    ) -> torch.Tensor:
        Y = m(X.to(compute_dtype(X.dtype)))
        flat = Y.detach().reshape(-1)
        limit = torch.finfo(X.dtype).max
        # one number, the sum of squares, shows that every value is in range; NaN compares false and is caught too
        if not float(torch.dot(flat, flat)) <= min(limit * limit, LARGEST):
            bad = ~(Y.detach().abs().amax(dim=1) <= limit)
            self._refuse(X[bad if mask is None else bad & mask])
        return Y.to(round_to or X.dtype)

    def _refuse(self, X: torch.Tensor) -> None:
        if len(X) == 0:
            return
        if not torch.isfinite(X).all():
            raise NonFiniteError(
                f"{self._name} received a state with NaN or infinity: the model produced it, or the steering at an "
                "earlier site did. Run the model without steering, or steer that earlier site with a lower strength."
            )
        reach = float(X.detach().abs().max())
        raise NonFiniteError(
            f"{self._name} produced NaN or a value beyond {X.dtype} (the states reach {reach:.3g}). "
            "Lower the strength, fit with more rows or shrinkage, or run the model in a wider dtype."
        )


def _elementwise(m: AffineMap) -> tuple[torch.Tensor, torch.Tensor] | None:
    match m:
        case Translation():
            return torch.ones(m.dim, dtype=torch.float64), to_tensor(m.shift)
        case Diagonal():
            return to_tensor(m.scale), to_tensor(m.offset)
    return None


def _code(classes: tuple[Label, ...], label: Label | None) -> int:
    return classes.index(label) if label in classes else -1
