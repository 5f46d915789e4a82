"""Classifiers of the concept; their predictions decide which unlabelled rows are steered."""

import warnings
from typing import Any, Literal, Self, get_args

from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDClassifier
from sklearn.neural_network import MLPClassifier

from repsurgery.errors import NotConvergedWarning, ParameterError

__all__ = ["ConceptKind", "ConceptMLP", "concept_classifier"]

ConceptKind = Literal["mlp", "linear"]


class ConceptMLP(MLPClassifier):
    """`MLPClassifier` that warns with `NotConvergedWarning` and stores in ``converged_`` whether it converged.

    Attributes
    ----------
    converged_ : bool
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit as scikit-learn does."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            super().fit(X, y, sample_weight)
        self.converged_ = self.n_iter_ < self.max_iter
        if not self.converged_:
            warnings.warn(
                f"The concept's MLP was still improving after {self.n_iter_} epochs. "
                "Raise max_iter with set_params, or use early_stopping=True.",
                NotConvergedWarning,
                stacklevel=2,
            )
        return self


def concept_classifier(kind: ConceptKind, *, early_stopping: bool = False, seed: int = 0) -> Any:
    """Return an unfitted classifier of the concept, as used by the paper or by its variants.

    Parameters
    ----------
    kind : {"mlp", "linear"}
        "mlp" has one hidden layer of 128 units and scikit-learn's defaults otherwise; "linear" is a logistic loss
        by stochastic gradients (l2, tol 1e-4, up to 500,000 epochs).
    early_stopping : bool
        For "mlp": hold out a tenth of the rows and stop when the score on them no longer improves, as in the released
        code; the paper's text does not mention it.
    seed : int

    Examples
    --------
    >>> from repsurgery.classifiers import concept_classifier
    >>> concept_classifier("mlp", early_stopping=True).hidden_layer_sizes
    (128,)
    """
    if kind == "mlp":
        return ConceptMLP(hidden_layer_sizes=(128,), early_stopping=early_stopping, random_state=seed)
    if kind == "linear":
        if early_stopping:
            raise ParameterError("early_stopping belongs to kind='mlp'; leave it out for kind='linear'.")
        return SGDClassifier(loss="log_loss", penalty="l2", random_state=seed, max_iter=500_000, tol=1e-4)
    raise ParameterError(f"kind is {kind!r}; it must be one of {list(get_args(ConceptKind))}.")
