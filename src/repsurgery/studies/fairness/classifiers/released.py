"""The task classifier of the released code: scikit-learn's saga, stopped after 30 passes."""

import warnings
from typing import Any, Self

from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

__all__ = ["ReleasedLogisticRegression", "released_logistic_regression"]


class ReleasedLogisticRegression(LogisticRegression):
    """`LogisticRegression` that stores in ``converged_`` what scikit-learn reports by a warning.

    Attributes
    ----------
    converged_ : bool
        Whether saga met its tolerance within ``max_iter`` passes. On Bias in Bios it does not.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit as scikit-learn does, without the warning: the protocol stops saga early on purpose."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            super().fit(X, y, sample_weight)
        self.converged_ = not any(issubclass(w.category, ConvergenceWarning) for w in caught)
        for w in caught:
            if not issubclass(w.category, ConvergenceWarning):
                warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
        return self


def released_logistic_regression(*, max_iter: int = 30, seed: int = 1) -> ReleasedLogisticRegression:
    """Return the unfitted classifier of the released code: saga, l2 with C = 1, tol 1e-4, no scaling of features.

    Parameters
    ----------
    max_iter : int
        Passes over the rows.
    seed : int
        Seed of the order in which saga draws rows.

    Notes
    -----
    With more than two classes scikit-learn fits the multinomial loss, as the released code requests. The result of 30
    passes depends on the order and the scale of the rows; `SoftmaxRegression` finds the optimum of the same loss.
    """
    return ReleasedLogisticRegression(C=1.0, solver="saga", max_iter=max_iter, tol=1e-4, random_state=seed)
