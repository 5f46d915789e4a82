"""Natural steering: the shift with the greatest first-order effect on a credit per nat of divergence."""

import copy
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy import linalg
from sklearn.utils.validation import check_is_fitted

from repsurgery.affine import Translation
from repsurgery.arrays import Matrix, Rows, Vector, check_integer, check_labels, check_rows, require_finite
from repsurgery.cards import Card
from repsurgery.certificates import EffectCertificate
from repsurgery.errors import DataError, ParameterError, ShapeError
from repsurgery.linalg.spectrum import rank_tolerance
from repsurgery.origin import Origin, finite_strength
from repsurgery.price import Fisher
from repsurgery.price.fisher import check_budget
from repsurgery.steering.base import METHODS
from repsurgery.steering.function import EVERYBODY, SteeringFunction
from repsurgery.steering.shown import ShownEstimator

__all__ = ["NaturalSteering"]

GRADIENTS = (1e-100, 1e100)
"""The largest entry of the gradients lies between these, so that squares of slopes neither vanish nor overflow."""


@METHODS.register("natural", listed=False)
class NaturalSteering(ShownEstimator):
    """The shift that lowers the expected credit most at a given price: δ ∝ −(F + λ tr(F)/d · I)⁻¹ g.

    It is fitted from the gradients that `lm.credit_gradients` returns and the matrix that `lm.fisher` returns, rather
    than from rows and labels. To raise a credit, negate the credits.

    Parameters
    ----------
    kl : float
        The predicted KL(base ‖ steered) of the shift in nats per token: ½ δᵀFδ = kl.
    damping : float
        λ. With few prompts a larger one follows the noise of g less; 0 is the exact optimum for the given g.
    folds : int
        The number of parts into which prompts are split for the held-out slope.
    with_shift : (d,) array-like, Translation or None
        Another shift, such as a difference of means, that is added to the natural one at equal price before the sum is
        scaled to ``kl``.
    random_state : int
        Seed of the split into folds.

    Attributes
    ----------
    map_ : Translation
    steering_ : SteeringFunction
        The shift, applied to every vector.
    certificate_ : EffectCertificate
        Its price, its slope on these prompts, and the held-out slope.

    Guarantees
    ----------
    The predicted price is ``kl`` (test_the_shift_costs_what_was_asked).
    With ``damping=0`` no shift of equal price has a greater first-order effect
    (test_the_natural_shift_beats_its_rivals_at_equal_price).
    The held-out slope has no optimism: it is zero on average where credits are noise
    (test_the_held_out_slope_of_noise_is_zero).

    Examples
    --------
    >>> import numpy as np, repsurgery as rs
    >>> F = rs.Fisher(100, np.diag([4.0, 1.0]))
    >>> G = np.array([[2.0, 1.0], [2.0, 1.0], [2.0, 1.0]])
    >>> rs.NaturalSteering(kl=1.0, damping=0.0, folds=3).fit(G, fisher=F).map_.shift
    array([-0.5, -1. ])
    """

    fitted_from: ClassVar[Literal["rows", "gradients"]] = "gradients"

    def __init__(
        self,
        *,
        kl: float = 0.1,
        damping: float = 0.3,
        folds: int = 5,
        with_shift: Any = None,
        random_state: int = 0,
    ) -> None:
        self.kl = kl
        self.damping = damping
        self.folds = folds
        self.with_shift = with_shift
        self.random_state = random_state

    def fit(self, G: Any, *, fisher: Fisher, groups: Any = None) -> Self:
        """Fit on gradients of the credit.

        Parameters
        ----------
        G : (n, d) array-like
            Gradients of the expected credit in a shift of the states; see `lm.credit_gradients`.
        fisher : Fisher
            The Fisher matrix at the same site; see `lm.fisher`.
        groups : (n,) labels, or None
            The prompt of each row. Rows of one prompt are averaged and stay in one fold. None: each row is a prompt.
        """
        budget = check_budget(self.kl)
        rows = check_rows(G, caller="NaturalSteering")
        require_finite(rows, caller="NaturalSteering")
        _require_squares(rows)
        metric = _Metric.of(fisher, rows.shape[1], self.damping, _shift_of(self.with_shift, rows.shape[1]))
        by_prompt = _group_means(rows.astype(np.float64), groups)
        folds = _folds(len(by_prompt), check_integer("folds", self.folds, least=2), self.random_state)
        shift = metric.direction(by_prompt.mean(axis=0))
        held_out = _held_out(by_prompt, folds, metric)
        certificate = EffectCertificate(
            method=type(self).__name__,
            kl=budget,
            slope=float(by_prompt.mean(axis=0) @ shift),
            held_out_slope=float(held_out.mean()),
            held_out_error=float(held_out.std(ddof=1) / math.sqrt(len(held_out))),
            prompts=len(by_prompt),
            folds=int(folds.max()) + 1,
            positions=fisher.count,
            damping=float(self.damping),
            added_shift=self.with_shift is not None,
        )
        self.n_features_in_ = rows.shape[1]
        self.steering_ = SteeringFunction({EVERYBODY: Translation(math.sqrt(budget) * shift)}).sealed(certificate)
        return self

    @property
    def map_(self) -> Translation:
        """The shift δ."""
        check_is_fitted(self, "steering_")
        shift = self.steering_.maps[EVERYBODY]
        assert isinstance(shift, Translation)
        return shift

    @property
    def certificate_(self) -> EffectCertificate:
        """The price and the slopes of the shift."""
        check_is_fitted(self, "steering_")
        certificate = self.steering_.certificate
        assert isinstance(certificate, EffectCertificate)
        return certificate

    def _learned(self) -> Card | None:
        return self.steering_._card() if hasattr(self, "steering_") else None

    @property
    def origin(self) -> Origin:
        """The model and site that the gradients came from, as far as `with_origin` states them."""
        check_is_fitted(self, "steering_")
        return self.steering_.origin

    def with_origin(self, origin: Origin | None = None, /, **facts: Any) -> Self:
        """Return a copy of this fitted estimator with its origin; see `SteeringFunction.with_origin`."""
        check_is_fitted(self, "steering_")
        placed = copy.copy(self)
        placed.steering_ = self.steering_.with_origin(origin, **facts)
        return placed

    def transform(self, X: Any) -> Rows:
        """Return shifted rows (n, d)."""
        check_is_fitted(self, "steering_")
        return self.steering_(X)


@dataclass(frozen=True, slots=True, eq=False)
class _Metric:
    """F in its eigenbasis, the inverse of its damped eigenvalues, and the shift to add.

    Attributes
    ----------
    values : (d,) array
    basis : (d, d) array
    inverse : (d,) array
    added : (d,) array or None
        Of price 1.
    """

    values: Vector
    basis: Matrix
    inverse: Vector
    added: Vector | None

    @classmethod
    def of(cls, fisher: Any, width: int, damping: Any, shift: Vector | None) -> "_Metric":
        if not isinstance(fisher, Fisher):
            raise ParameterError(f"fit got a {type(fisher).__name__} for fisher; it takes a Fisher, see lm.fisher.")
        if fisher.dim != width:
            raise ShapeError(f"The gradients have {width} features, the Fisher matrix {fisher.dim}. Use one site.")
        if finite_strength(damping) < 0:
            raise ParameterError(f"damping is {damping!r}; it must be a number of at least 0.")
        values, basis = linalg.eigh(fisher.matrix)
        values = np.maximum(values, 0.0)
        # without damping, a direction that has no price within rounding has no natural step
        least = rank_tolerance("float64", width, from_scatter=False) * values.max(initial=0.0)
        damped = values + damping * values.mean()
        inverse = np.where(damped > least, 1 / np.where(damped > least, damped, 1.0), 0.0)
        metric = cls(values, basis, inverse, None)
        return metric if shift is None else cls(values, basis, inverse, metric.scaled(shift))

    def scaled(self, shift: Vector) -> Vector:
        """Return ``shift`` at a price of 1: ½ δᵀFδ = 1."""
        price = 0.5 * float(self.values @ np.square(self.basis.T @ shift))
        if not price > 0:
            raise DataError("A shift is zero, or changes no prediction. Check the gradients, or the shift to add.")
        scaled: Vector = shift / math.sqrt(price)
        return scaled

    def direction(self, g: Vector) -> Vector:
        """Return the natural shift for the gradient ``g`` (d,), with the added one, at a price of 1."""
        natural = self.scaled(-self.basis @ (self.inverse * (self.basis.T @ g)))
        return natural if self.added is None else self.scaled(natural + self.added)


def _shift_of(value: Any, width: int) -> Vector | None:
    if value is None:
        return None
    shift = np.asarray(getattr(getattr(value, "map_", value), "shift", value), dtype=np.float64)
    if shift.shape != (width,) or not np.isfinite(shift).all():
        raise ShapeError(f"with_shift has shape {shift.shape}; it must be a finite vector of shape ({width},).")
    return shift


def _require_squares(G: Rows) -> None:
    largest = float(np.abs(G.astype(np.float64)).max(initial=0.0))
    smallest, most = GRADIENTS
    if largest and not smallest <= largest <= most:
        raise DataError(
            f"The gradients reach {largest:.3g}, and float64 holds their squares only between {smallest:g} and "
            f"{most:g}. Multiply the credits by a constant that brings the gradients near 1; the shift does not depend "
            "on it."
        )


def _group_means(G: Matrix, groups: Any) -> Matrix:
    if groups is not None:
        labels, codes = check_labels(groups, len(G), caller="NaturalSteering")
        sums = np.zeros((len(labels), G.shape[1]))
        np.add.at(sums, codes, G)
        G = sums / np.bincount(codes)[:, None]
    if len(G) < 2:
        raise DataError(f"NaturalSteering got gradients of {len(G)} prompt; its held-out slope needs at least two.")
    return G


def _folds(n: int, folds: int, random_state: int) -> np.ndarray:
    order = np.random.default_rng(random_state).permutation(n)
    fold = np.empty(n, dtype=np.intp)
    fold[order] = np.arange(n) % min(folds, n)
    return fold


def _held_out(G: Matrix, folds: np.ndarray, metric: _Metric) -> Vector:
    """Return, per prompt, its slope along the shift that was computed from the prompts of the other folds."""
    slopes = np.empty(len(G))
    for fold in range(int(folds.max()) + 1):
        inside = folds == fold
        slopes[inside] = G[inside] @ metric.direction(G[~inside].mean(axis=0))
    return slopes
