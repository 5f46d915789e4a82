"""`SoftmaxRegression`: multinomial logistic regression with scikit-learn's optimum, for very many rows."""

import warnings
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_is_fitted

from repsurgery.arrays import (
    Labels,
    Rows,
    check_integer,
    check_labels,
    check_weights,
    estimator_rows,
    require_finite,
    row_blocks,
)
from repsurgery.errors import LabelError, NotConvergedWarning, ParameterError
from repsurgery.studies.fairness.classifiers.minimise import Minimum, minimise
from repsurgery.studies.fairness.classifiers.softmax import SoftmaxLoss

__all__ = ["SoftmaxRegression"]

FLOAT32_TOL = 1e-9
"""For this ``tol`` and larger ones float32 products suffice: their rounding changes the loss by less."""


class SoftmaxRegression(ClassifierMixin, BaseEstimator):
    """Multinomial logistic regression by preconditioned L-BFGS on cached logits.

    Minimises exactly what ``sklearn.linear_model.LogisticRegression(C=C)`` minimises:
    Σ_i w_i log-loss_i + ‖W‖² / (2C), intercepts free. For two classes that is the loss of one weight vector
    w = W₁ − W₀ with ‖w‖² / (2C), and ``coef_`` has one row, as scikit-learn's has.

    Parameters
    ----------
    C : float
        Inverse of the penalty.
    tol : float
        Stop when ½ gᵀ M⁻¹ g ≤ tol · loss, where g is the gradient and M the preconditioner, an approximate Hessian.
        With the exact Hessian the left side would estimate the remaining decrease of the loss; in practice the
        remaining decrease is up to about five times larger. Products are float32 for tol ≥ 1e-9, float64 below.
    max_iter : int
        Largest number of iterations. Each computes two products of an (n, d) by a (d, K) matrix.

    Attributes
    ----------
    classes_ : (K,) labels, sorted
    coef_ : (K, d) float64, or (1, d) for two classes
    intercept_ : (K,) float64, or (1,)
    loss_ : float
        The objective at the returned coefficients.
    n_iter_ : int
    converged_ : bool

    Notes
    -----
    ``X`` may be a memory map of float16, float32 or float64: it is read in blocks, centred on the way and never
    copied. Besides X a fit stores 3 n K numbers of the working precision.

    Guarantees
    ----------
    The optimum is scikit-learn's, for two classes and for more, weighted or not
    (test_the_optimum_is_that_of_scikit_learn, test_weights_count_rows).
    Adding an offset to the data changes the intercepts only (test_an_offset_of_the_data_changes_the_intercepts_only).
    A memory map of float16 or float32 gives the same result as the same numbers in memory
    (test_memory_maps_are_read_as_they_are).
    The same call gives the same bits (test_fitting_twice_gives_the_same_bits).
    With 28 classes and 768 features it reaches the same loss faster than scikit-learn
    (benchmarks/logistic_regression.py).

    Examples
    --------
    >>> import numpy as np
    >>> from repsurgery.classifiers import SoftmaxRegression
    >>> X, y = np.array([[0.0], [1.0], [4.0], [5.0], [9.0]]), ["a", "a", "b", "b", "c"]
    >>> SoftmaxRegression().fit(X, y).predict([[0.5], [9.5]]).tolist()
    ['a', 'c']
    """

    def __init__(self, *, C: float = 1.0, tol: float = 1e-6, max_iter: int = 1000) -> None:
        self.C = C
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit on rows ``X`` (n, d) with labels ``y`` (n,); weight 2 counts a row twice, 0 leaves it out."""
        self._require_parameters()
        rows = self._enter(X, reset=True)
        require_finite(rows, caller=type(self).__name__)
        self._warn_of_columns(y)
        classes, codes = check_labels(y, len(rows), caller=type(self).__name__)
        w = check_weights(sample_weight, len(rows), caller=type(self).__name__)
        self._require_classes(classes, codes, w)
        K = len(classes)
        # two classes: W₁ = −W₀ = w/2, so ‖W‖² = ‖w‖²/2 and the penalty doubles
        penalty = (2.0 if K == 2 else 1.0) / float(self.C)
        dtype = np.float32 if self.tol >= FLOAT32_TOL else np.float64
        loss = SoftmaxLoss(rows, codes, K, w, penalty=penalty, dtype=dtype)
        minimum = minimise(loss, tol=float(self.tol), max_iter=int(self.max_iter))
        theta = minimum.theta
        W, b = theta[:, :-1], theta[:, -1] - theta[:, :-1] @ loss.pivot.astype(np.float64)
        self.classes_ = np.array(classes)
        self.coef_, self.intercept_ = (W[1:] - W[:1], b[1:] - b[:1]) if K == 2 else (W, b)
        self.loss_, self.n_iter_ = minimum.loss, minimum.iterations
        self.converged_ = minimum.decrement <= self.tol * minimum.loss
        if not self.converged_:
            self._warn(minimum)
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the logits (n, K), or for two classes the log-odds (n,) of the second."""
        check_is_fitted(self)
        rows = self._enter(X, reset=False)
        require_finite(rows, caller=type(self).__name__)
        F = np.empty((len(rows), len(self.intercept_)))
        for block in row_blocks(*rows.shape):
            F[block] = rows[block] @ self.coef_.T + self.intercept_
        return F[:, 0] if len(self.classes_) == 2 else F

    def predict(self, X: Any) -> Labels:
        """Return the most probable class of each row (n,)."""
        F = self.decision_function(X)
        labels: Labels = self.classes_[(F > 0).astype(np.intp) if F.ndim == 1 else F.argmax(axis=1)]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class (n, K)."""
        F = self.decision_function(X)
        if F.ndim == 1:
            F = np.column_stack([-F / 2, F / 2])
        P: NDArray[np.float64] = np.exp(F - F.max(axis=1, keepdims=True))
        P /= P.sum(axis=1, keepdims=True)
        return P

    def _enter(self, X: Any, *, reset: bool) -> Rows:
        return estimator_rows(self, X, reset=reset, remedy="Pass rows of the representation used for fitting")

    def _require_parameters(self) -> None:
        for name in ("C", "tol"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < np.inf:
                raise ParameterError(f"SoftmaxRegression got {name}={value!r}; it must be a finite number above 0.")
        check_integer("max_iter of SoftmaxRegression", self.max_iter)

    def _require_classes(self, classes: list[Any], codes: NDArray[np.intp], w: Any) -> None:
        filled = np.flatnonzero(np.bincount(codes, w, minlength=len(classes)))
        if len(filled) < 2:
            raise LabelError(
                f"SoftmaxRegression got labels of 1 class only ({[classes[k] for k in filled]}); "
                "a classifier needs at least two. Check the labels, or add rows of another class."
            )

    @staticmethod
    def _warn_of_columns(y: Any) -> None:
        if getattr(y, "ndim", 1) == 2:
            message = "A column-vector y was passed when a 1d array was expected; pass y.ravel()."
            warnings.warn(message, DataConversionWarning, stacklevel=3)

    def _warn(self, minimum: Minimum) -> None:
        warnings.warn(
            f"SoftmaxRegression stopped after {minimum.iterations} iterations with the decrement at "
            f"{minimum.decrement / minimum.loss:.1e} of the loss; tol is {self.tol:g}. "
            "Raise max_iter, lower C, or loosen tol.",
            NotConvergedWarning,
            stacklevel=3,
        )
