"""A steering function on rows of states: the gate first, then the maps on the rows it selects."""

import torch

from repsurgery.affine import AffineMap, Diagonal, Translation
from repsurgery.arrays import Label
from repsurgery.errors import NonFiniteError, ParameterError, ShapeError
from repsurgery.lm.steer.torch_maps import (
    TorchMap,
    as_torch_gate,
    as_torch_map,
    as_torch_weights,
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
    if steering.needs_labels and not labelled:
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
        gate, classes = steering.gate, steering.gate.classes or steering.classes
        self._weights = None if gate.hard else as_torch_weights(gate, steering.maps)
        self._gate = as_torch_gate(gate) if gate.hard and not steering.steers_all else None
        self._ordered = [as_torch_map(m) for m in steering.maps.values()]
        self._maps = {_code(classes, label): m for label, m in zip(steering.maps, self._ordered, strict=True)}
        self.elementwise = _elementwise(next(iter(steering.maps.values()))) if steering.steers_all else None

    def __call__(self, X: torch.Tensor) -> torch.Tensor:
        """Return steered rows; ``X`` itself is not written to."""
        return self.counted(X)[0]

    def counted(self, X: torch.Tensor) -> tuple[torch.Tensor, float]:
        """Return steered rows, and how many of them the gate assigned to a map; ``X`` itself is not written to.

        Behind a soft gate the sum of the weights takes the place of the number of rows.
        """
        if X.shape[1] != self.dim:
            raise ShapeError(
                f"{self._name} was made for {self.dim} features; the state there has {X.shape[1]}. "
                "Fit it on vectors extracted at this site of this model."
            )
        n = X.shape[0]
        if self._weights is not None:
            return self._softly(X, self._weights(X))
        if self._gate is None:
            return self._mapped(X, self._ordered[0]), n
        if n == 1:
            m = self._maps.get(self._gate.of_one(X))
            return (X, 0) if m is None else (self._mapped(X, m), 1)
        codes = self._gate(X)
        out, count = X, 0.0
        for code, m in self._maps.items():
            out, gated = self._choose(X, out, codes == code, m)
            count += gated
        return out, count

    def _softly(self, X: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, float]:
        h = X.to(compute_dtype(X.dtype))
        on, moved = weights != 0, h
        steered, alone = on.any(dim=1), on.sum(dim=1, keepdim=True) == 1
        for j, m in enumerate(self._ordered):
            t, some = weights[:, j : j + 1].to(h.dtype), on[:, j : j + 1]
            Y = self._mapped(X, m, on[:, j], round_to=h.dtype)
            # a weight of 1 leaves no rounding behind: such a row is what the map returns
            step = torch.where((t == 1) & alone, Y, moved + t * (Y - h))
            moved = torch.where(some, step, moved)
        moved = moved.to(X.dtype)
        # the maps are in range, but weights above 1 and several maps reach beyond it
        beyond = ~torch.isfinite(moved.detach()).all(dim=1) & steered
        if bool(beyond.any()):
            self._refuse(X[beyond])
        return torch.where(steered[:, None], moved, X), float(weights.detach().sum())

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
