"""The profession classifier of the released code: scikit-learn's saga, cut off after 30 passes."""

import warnings
from typing import Any, Self

from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

__all__ = ["ReleasedLogisticRegression", "released_logistic_regression"]


class ReleasedLogisticRegression(LogisticRegression):
    """`LogisticRegression` that says in ``converged_`` what scikit-learn says in a warning.

    Attributes
    ----------
    converged_ : bool
        Whether saga met its tolerance within ``max_iter`` passes. At the size of Bios it does not.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit as scikit-learn does; being cut off is the protocol here and no reason to warn."""
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
        Of the order in which saga draws rows.

    Notes
    -----
    With more than two classes scikit-learn fits the multinomial loss, as the released code asked for. What 30 passes
    leave depends on the order of rows and on their scale: `SoftmaxRegression` has the optimum it was meant to find.
    """
    return ReleasedLogisticRegression(C=1.0, solver="saga", max_iter=max_iter, tol=1e-4, random_state=seed)
