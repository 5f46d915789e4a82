"""Maps and gates as torch functions: the only place where NumPy values become tensors.

A map keeps its structure: a translation is one addition, a diagonal one multiply-add, a low-rank map stays low-rank,
a dense one is a single matrix product. Maps are computed in float32 for float32, bfloat16 and float16 states and in
float64 for float64 states. Gates are scored in float64, so that a token is steered exactly when the NumPy gate
selects it, also where the states have a large common offset.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from repsurgery.affine import AffineMap, Diagonal, Identity, LowRank, Translation
from repsurgery.arrays import Label
from repsurgery.gates import Gate, LinearGate, MLPGate, QuadraticGate, SoftGate
from repsurgery.gates.base import checked_weights, columns_of, require_weights

__all__ = [
    "HostGate",
    "TorchGate",
    "TorchMap",
    "TorchWeights",
    "as_torch_gate",
    "as_torch_map",
    "as_torch_weights",
    "compute_dtype",
    "precise_dtype",
    "to_rows",
    "to_tensor",
]

Tensor: TypeAlias = torch.Tensor


def compute_dtype(state: torch.dtype) -> torch.dtype:
    """Return the dtype in which states of dtype ``state`` are mapped."""
    return torch.float64 if state == torch.float64 else torch.float32


def to_rows(state: Tensor) -> NDArray[np.float32]:
    """Return states (..., d) as float32 rows on the host."""
    rows: NDArray[np.float32] = state.detach().to(torch.float32).cpu().numpy()
    return rows


def to_tensor(array: Any) -> Tensor:
    """Return a float64 tensor on the host that shares nothing with ``array``."""
    return torch.from_numpy(np.array(array, dtype=np.float64, order="C"))


class _Buffers:
    """Arrays as tensors, copied once to each device and dtype in which they are used."""

    def __init__(self, arrays: Sequence[NDArray[Any]]) -> None:
        self._arrays = [np.array(a, dtype=np.float64, order="C") for a in arrays]
        self._copies: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}

    def on(self, device: torch.device, dtype: torch.dtype) -> list[Tensor]:
        key = (device, dtype)
        if key not in self._copies:
            # tensors created in inference mode could never be used for a gradient later
            with torch.inference_mode(mode=False):
                self._copies[key] = [torch.from_numpy(a).to(device=device, dtype=dtype) for a in self._arrays]
        return self._copies[key]


class TorchMap:
    """An affine map on rows (n, d) in the dtype of those rows.

    Attributes
    ----------
    cheap : bool
        Whether mapping all rows costs less than gathering some of them first: true for every map but a dense one.
    """

    def __init__(self, arrays: Sequence[NDArray[Any]], act: Callable[..., Tensor], *, cheap: bool = True) -> None:
        self._buffers = _Buffers(arrays)
        self._act = act
        self.cheap = cheap

    def __call__(self, X: Tensor) -> Tensor:
        """Return the mapped rows as a new tensor."""
        return self._act(X, *self._buffers.on(X.device, X.dtype))


def as_torch_map(m: AffineMap) -> TorchMap:
    """Return ``m`` as a function of tensors, in the same structure."""
    match m:
        case Identity():
            return TorchMap([], torch.clone)
        case Translation():
            return TorchMap([m.shift], torch.add)
        case Diagonal():
            return TorchMap([m.scale, m.offset], lambda X, scale, offset: torch.addcmul(offset, X, scale))
        case LowRank():
            return TorchMap([m.left.T, m.right.T, m.offset, m.scale], _low_rank)
    return TorchMap([m.weight.T, m.bias], lambda X, W, b: torch.addmm(b, X, W), cheap=False)


def _low_rank(X: Tensor, left: Tensor, right: Tensor, offset: Tensor, scale: Tensor) -> Tensor:
    return torch.addmm(torch.addcmul(offset, X, scale), X @ right, left)


class TorchGate:
    """A gate on states (n, d) of any dtype: the index of each row's class, (n,)."""

    def __init__(self, arrays: Sequence[NDArray[Any]], scores: Callable[..., Tensor]) -> None:
        self._buffers = _Buffers(arrays)
        self._scores = scores

    def __call__(self, X: Tensor) -> Tensor:
        """Return the class index of each row; a single score means the second class where it is not negative."""
        scores = self._scored(X)
        return scores.squeeze(1) >= 0 if scores.shape[1] == 1 else scores.argmax(dim=1)

    def of_one(self, X: Tensor) -> int:
        """Return the class index of a single row (1, d), compared on the host, which saves two calls into torch."""
        scores = self._scored(X)
        return int(scores.item() >= 0) if scores.shape[1] == 1 else int(scores.argmax())

    def _scored(self, X: Tensor) -> Tensor:
        precise = precise_dtype(X)
        return self._scores(X.to(precise), *self._buffers.on(X.device, precise))


class TorchWeights:
    """The weights of a soft gate on states (n, d) of any dtype, in the precision in which gates are scored.

    Parameters
    ----------
    arrays : sequence of arrays
    weights : callable
        From states (n, d) and the arrays to weights (n, k).
    columns : (k, m) array
        From the weights of classes to those of maps; see `columns_of`. A single weight is that of a single map.
    """

    def __init__(self, arrays: Sequence[NDArray[Any]], weights: Callable[..., Tensor], columns: NDArray[Any]) -> None:
        self._buffers, self._columns = _Buffers(arrays), _Buffers([columns])
        self._weights = weights
        self._maps = columns.shape[1]

    def __call__(self, X: Tensor) -> Tensor:
        """Return how strongly each map steers each row, (n, m)."""
        precise = precise_dtype(X)
        W = self._weights(X.to(precise), *self._buffers.on(X.device, precise))
        return W if W.shape[1] == self._maps == 1 else W @ self._columns.on(W.device, W.dtype)[0]


def precise_dtype(X: Tensor) -> torch.dtype:
    """Return the dtype in which gates are scored on the device of ``X``."""
    return torch.float32 if X.device.type == "mps" else torch.float64  # mps has no float64


class HostGate:
    """A gate without a torch version, which decides on the host."""

    def __init__(self, gate: Gate) -> None:
        self._decide = gate.codes

    def __call__(self, X: Tensor) -> Tensor:
        """Return the class index of each row."""
        return torch.from_numpy(np.asarray(self._decide(to_rows(X)), dtype=np.int64)).to(X.device)

    def of_one(self, X: Tensor) -> int:
        """Return the class index of a single row (1, d)."""
        return int(self(X))


def as_torch_gate(gate: Gate) -> TorchGate | HostGate:
    """Return ``gate`` as a function of tensors; a gate without a torch version decides on the host."""
    match gate:
        case LinearGate():
            return TorchGate([gate.intercept, gate.coef.T], lambda X, c, G: torch.addmm(c, X, G))
        case MLPGate():
            return TorchGate([gate.hidden, gate.hidden_bias, gate.readout, gate.readout_bias], _mlp)
        case QuadraticGate():
            return TorchGate([gate.means, gate.whiteners, gate.constants], _quadratic)
    if hasattr(gate, "torch_scores"):
        return TorchGate(list(gate.arrays().values()), gate.torch_scores)
    return HostGate(gate)


def _mlp(X: Tensor, hidden: Tensor, hidden_bias: Tensor, readout: Tensor, readout_bias: Tensor) -> Tensor:
    return torch.addmm(readout_bias, torch.addmm(hidden_bias, X, hidden).relu(), readout)


def _quadratic(X: Tensor, means: Tensor, whiteners: Tensor, constants: Tensor) -> Tensor:
    squares = [((X - mean) @ A.T).square().sum(dim=1) for mean, A in zip(means, whiteners, strict=True)]
    return constants - 0.5 * torch.stack(squares, dim=1)


def as_torch_weights(gate: Gate, labels: Collection[Label | None]) -> TorchWeights:
    """Return the weights of a soft ``gate`` for the maps of these ``labels``, as a function of tensors.

    A gate without ``torch_weights`` decides on the host, and no gradient passes through its weights.
    """
    columns = columns_of(gate.classes, labels)
    if isinstance(gate, SoftGate):
        return TorchWeights([gate.intercept, gate.coef.T, gate.knots, gate.strengths], _strength, columns)
    if not hasattr(gate, "torch_weights"):

        def on_host(X: Tensor) -> Tensor:
            return torch.from_numpy(checked_weights(gate, X.detach().cpu().numpy())).to(X)

        return TorchWeights([], on_host, columns)
    of_tensors: Callable[..., Tensor] = gate.torch_weights

    def on_device(X: Tensor, *arrays: Tensor) -> Tensor:
        W = of_tensors(X, *arrays)
        require_weights(gate, tuple(W.shape), len(X), valid=bool(((W >= 0) & torch.isfinite(W)).all()))
        return W

    return TorchWeights(list(gate.arrays().values()), on_device, columns)


def _strength(X: Tensor, c: Tensor, G: Tensor, knots: Tensor, strengths: Tensor) -> Tensor:
    scores = torch.addmm(c, X, G).squeeze(1)
    after = torch.searchsorted(knots, scores.detach(), right=True)
    i, j = (after - 1).clamp(min=0), after.clamp(max=len(knots) - 1)
    width = knots[j] - knots[i]
    share = torch.where(width > 0, (scores - knots[i]) / torch.where(width > 0, width, 1.0), 0.0)
    return (strengths[i] + share * (strengths[j] - strengths[i]))[:, None]
