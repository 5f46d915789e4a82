"""`BaseSteering`: how estimators are fitted, from statistics to a certified steering function; `METHODS`: by name."""

from abc import abstractmethod
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from sklearn.utils import Tags

from repsurgery.affine import AffineMap
from repsurgery.arrays import Label, Rows, check_groups, check_integer, check_labels, check_weights
from repsurgery.certificates.certificate import Certificate, Claim, HeldOut, Population
from repsurgery.certificates.from_moments import Method, Solution, issue
from repsurgery.certificates.on_rows import measured_on_rows
from repsurgery.errors import LabelError, ParameterError, RowsNeededError
from repsurgery.gates.build import make_gate, require_no_rows
from repsurgery.moments import ClassMoments, CrossMoments
from repsurgery.moments.moments import Precision
from repsurgery.moments.shrinkage import SHRINKAGES, Alpha, FitRows, alpha_read, check_shrinkage, ridge_read
from repsurgery.origin import UNKNOWN
from repsurgery.registry import Registry, reads
from repsurgery.steering.advice import warn_of_certificate, warn_of_missing_concept
from repsurgery.steering.fitted import FittedSteering
from repsurgery.steering.function import EVERYBODY, SteeringFunction
from repsurgery.steering.held_out import held_out_gaps, warn_of_held_out

if TYPE_CHECKING:
    from repsurgery.steering.natural import NaturalSteering

__all__ = ["METHODS", "BaseSteering", "build_method", "method_of_rows"]

METHODS: Registry[type["BaseSteering"] | type["NaturalSteering"]] = Registry(
    "method",
    home="repsurgery.steering",
    group="repsurgery.methods",
    needs="a subclass of an estimator of repsurgery",
    accepts=lambda value: isinstance(value, type) and issubclass(value, BaseSteering),
)
"""The estimators by the names that commands and studies use. Each registers itself in its own file. Those that are
fitted from something else than rows and labels (``fitted_from``) are found by name and not listed."""


class BaseSteering(FittedSteering):
    """Abstract base of the estimators.

    A subclass says in `_solve` how its maps follow from moments, and in ``claims`` what it guarantees of them. Claims
    are not inherited: a subclass that states none guarantees nothing, whatever its parent guarantees.

    Attributes
    ----------
    fitted_from : {"rows", "gradients"}
        What `fit` takes.
    claims : tuple
        What the certificate states and `verify` tests: "means", "covariances", "variances", "neighbours".
    population : {"source", "all", "neutral"}
        Whose displacement ``certificate_.cost`` averages.
    study_shrinkage : str
        The shrinkage that the paper's presets of the studies use, with the ridge of the study.
    text_shrinkage : str
        The shrinkage that the command line uses where none is named: of rows that come from texts, few are independent.
    """

    # the concept travels by metadata routing wherever y is the task's label; groups travel to splitters too
    __metadata_request__fit: ClassVar = {"concept": True, "groups": True}
    __metadata_request__partial_fit: ClassVar = {"concept": True, "groups": True}

    fitted_from: ClassVar[Literal["rows", "gradients"]] = "rows"
    claims: ClassVar[tuple[Claim, ...]] = ()
    population: ClassVar[Population]
    study_shrinkage: ClassVar[str] = "none"
    text_shrinkage: ClassVar[str] = "none"

    # defaults for estimators without these parameters
    shrinkage: Any = "none"
    ridge: Any = 1e-5
    alpha: Alpha = "auto"
    gate: Any = "always"
    precision: Precision = "float64"
    folds: int | None = None
    random_state: Any = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.claims = cls.__dict__.get("claims", ())

    @abstractmethod
    def _solve(self, moments: ClassMoments, rows: FitRows | None) -> tuple[Method, dict[Label | None, Solution]]:
        """Return `_method`, and one solution per steered class, or under None one for all classes.

        ``rows`` are those of `fit`, and None where only moments are known.
        """

    def _method(
        self, *, shrinkage: str | None = None, target: Label | None = None, neutral: Label | None = None
    ) -> Method:
        """Return what the certificate says of this estimator."""
        name = self.shrinkage if shrinkage is None else shrinkage
        ridge, alpha = ridge_read(name, self.ridge), alpha_read(name, self.alpha)
        return Method(type(self).__name__, self.claims, self.population, name, ridge, target, neutral, alpha)

    def fit(self, X: Any, y: Any = None, *, concept: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit on rows ``X`` (n, d) and their concept labels (n,).

        Parameters
        ----------
        X : (n, d) array-like
            It is never modified; the arithmetic is float64 for every dtype.
        y : (n,) labels, or None
            The concept, unless ``concept`` is passed; then ``y`` is ignored (in a pipeline it is the task's label).
        concept : (n,) labels, or None
        sample_weight : (n,) array-like, or None
            A weight of 2 counts a row twice.
        groups : (n,) labels, or None
            Rows with the same label are not independent, such as the tokens of one text; see `ClassMoments.of`.
        """
        return self._adopt(*self._counted(self._enter(X, reset=True), y, concept, sample_weight, groups))

    def partial_fit(
        self, X: Any, y: Any = None, *, concept: Any = None, sample_weight: Any = None, groups: Any = None
    ) -> Self:
        """Add rows to the statistics; the maps are computed when they are next used.

        All rows of a group must come in one call, because a group whose rows come in two calls counts as two groups.
        """
        first = not hasattr(self, "moments_")
        moments, _ = self._counted(self._enter(X, reset=first), y, concept, sample_weight, groups)
        self._require_no_rows()
        self.moments_ = moments if first else self.moments_ + moments
        self._steering = None
        self._origin = UNKNOWN if first else self._origin.revised(data=None)
        return self

    def fit_transform(
        self, X: Any, y: Any = None, *, concept: Any = None, sample_weight: Any = None, groups: Any = None
    ) -> Rows:
        """Fit, then steer the same rows: by ``concept`` where it is passed, else by the gate."""
        self.fit(X, y, concept=concept, sample_weight=sample_weight, groups=groups)
        return self.transform(X, concept=concept)

    @classmethod
    def from_moments(cls, moments: ClassMoments | CrossMoments, **params: Any) -> Self:
        """Return an estimator with these ``params``, fitted from ``moments`` alone."""
        return cls(**params).fit_moments(moments)

    def fit_moments(self, moments: ClassMoments | CrossMoments) -> Self:
        """Fit from statistics that were computed elsewhere: streamed, merged or loaded from a file.

        `CrossMoments` are those of a continuous concept.
        """
        wanted = self._kind_of_moments()
        if not isinstance(moments, wanted):
            raise ParameterError(
                f"fit_moments of {self!r:.80} takes {wanted.__name__}, not {type(moments).__name__}; see "
                f"{wanted.__name__}.of."
            )
        self._require_no_rows()
        self.n_features_in_ = moments.dim
        return self._adopt(moments, None)

    def _kind_of_moments(self) -> type[ClassMoments] | type[CrossMoments]:
        return ClassMoments

    def _adopt(self, moments: Any, rows: FitRows | None) -> Self:
        steering = self._steering_for(moments, rows)
        self.moments_ = moments
        self._steering = steering
        self._origin = UNKNOWN
        return self

    def _counted(self, X: Rows, y: Any, concept: Any, sample_weight: Any, groups: Any) -> tuple[Any, FitRows]:
        if concept is None and y is not None:
            warn_of_missing_concept(type(self).__name__)
        return self._count(X, y if concept is None else concept, sample_weight, groups)

    def _count(self, X: Rows, z: Any, sample_weight: Any, groups: Any) -> tuple[Any, FitRows]:
        """Return the moments of checked rows, and the rows for what moments are not enough for."""
        name = type(self).__name__
        labels, codes = check_labels(z, len(X), caller=name)
        w, by_group = check_weights(sample_weight, len(X), caller=name), check_groups(groups, len(X), caller=name)
        rows = FitRows(X, codes, labels, w, by_group)
        return self._moments_of(rows), rows

    def _require_no_rows(self) -> None:
        require_no_rows(self.gate)
        if self.folds is not None:
            raise RowsNeededError(
                f"folds={self.folds} measures the map on rows left out of the fit, and moments do not hold rows. Call "
                "fit(X, z), or choose folds=None."
            )
        if "rows" in reads(SHRINKAGES[self.shrinkage]):
            raise RowsNeededError(
                f"shrinkage={self.shrinkage!r} needs rows, and moments do not hold them. Call fit(X, z), or choose "
                "shrinkage='pooled', 'oas', 'ridge' or 'relative-ridge', which read moments."
            )

    def _steering_for(self, moments: ClassMoments, rows: FitRows | None) -> SteeringFunction:
        if len(moments) < 2:
            raise LabelError(
                f"{type(self).__name__} got labels of 1 class only ({moments.labels}); "
                "a concept needs at least two. Check the labels, or add rows of another class."
            )
        check_shrinkage(self.shrinkage, self.ridge, self.alpha)
        moments.check_sketch()
        for m in moments.values():
            m.require_scale()
        method, solutions = self._solve(moments, rows)
        gate = make_gate(
            self.gate,
            moments,
            rows,
            shrinkage=self.shrinkage,
            ridge=self.ridge,
            alpha=self.alpha,
            random_state=self.random_state,
        )
        steering = SteeringFunction({k: s.map for k, s in solutions.items()}, gate, tuple(moments.labels))
        by_class = {c: solutions[c if c in solutions else EVERYBODY] for c in moments if {c, EVERYBODY} & {*solutions}}
        certificate = issue(method, moments, by_class)
        if rows is not None:
            certificate = measured_on_rows(certificate, steering.maps, rows, moments)
            certificate = replace(certificate, held_out=self._held_out(certificate, rows))
        warn_of_certificate(certificate, lambda: moments.total)
        warn_of_held_out(certificate)
        return steering.sealed(certificate)

    def _held_out(self, certificate: Certificate, rows: FitRows) -> HeldOut | None:
        """Return the gaps on rows left out, where ``folds`` asks for them."""
        if self.folds is None:
            return None
        folds = check_integer("folds", self.folds, least=2)
        parts: list[ClassMoments] = []

        def maps_without(fold: Any, f: int) -> dict[Label | None, AffineMap]:
            if not parts:
                parts.extend(self._moments_of(rows.subset(fold == i)) for i in range(folds))
            others = reduce(ClassMoments.merge, [part for i, part in enumerate(parts) if i != f])
            return {label: s.map for label, s in self._solve(others, rows.subset(fold != f))[1].items()}

        return held_out_gaps(certificate, rows, folds, maps_without)

    def _moments_of(self, rows: FitRows) -> ClassMoments:
        return ClassMoments.of_codes(rows.X, rows.labels, rows.codes, rows.weights, self.precision, rows.groups)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def build_method(
    name: str,
    *,
    source: Label | None = None,
    target: Label | None = None,
    gate: Any = "always",
    shrinkage: str | None = None,
    ridge: float | None = None,
    alpha: Alpha | None = None,
) -> BaseSteering:
    """Return an unfitted estimator by name, with those of these parameters that it takes.

    Parameters
    ----------
    name : str
        A name of `METHODS` that is fitted from rows.
    source, target, gate
        See the estimators.
    shrinkage, ridge, alpha
        None leaves the estimator's own.
    """
    estimator = method_of_rows(name)
    numbers = {"shrinkage": shrinkage, "ridge": ridge, "alpha": alpha}
    given = {"source": source, "target": target, "gate": gate}
    given |= {name: value for name, value in numbers.items() if value is not None}
    taken = estimator().get_params()
    return estimator(**{name: value for name, value in given.items() if name in taken})


def method_of_rows(name: str) -> type[BaseSteering]:
    """Return the estimator called ``name``, or raise a `ParameterError` unless it is fitted from rows and labels."""
    method = METHODS[name]
    if not issubclass(method, BaseSteering):
        raise ParameterError(
            f"The method {name!r} is fitted from {method.fitted_from}, not from rows and labels: call fit of "
            f"rs.{method.__name__}, or let tune choose it. With rows, choose one of {', '.join(METHODS)}."
        )
    return method
