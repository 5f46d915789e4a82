"""`TowardTarget`: the base of estimators that steer each source class to one target by a map of its own."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

from repsurgery.affine import AffineMap
from repsurgery.arrays import Label
from repsurgery.certificates.certificate import Population
from repsurgery.certificates.from_moments import Method, Solution, pushforward
from repsurgery.moments import ClassMoments, Moments
from repsurgery.moments.closed_forms import covariance_distance
from repsurgery.moments.moments import Precision
from repsurgery.moments.pooled import blend
from repsurgery.moments.shrinkage import NO_SHRINKAGE, Alpha, FitRows, Shrinkage, alpha_read, shrink_classes
from repsurgery.steering.base import BaseSteering
from repsurgery.steering.selection import select_classes

__all__ = ["TowardTarget"]


class TowardTarget(BaseSteering):
    """Abstract base: a subclass implements `_pair`, the map from one source class to the target.

    Attributes
    ----------
    shrinks : bool
        Whether the map reads covariances, so that ``shrinkage`` applies to them.
    """

    population: ClassVar[Population] = "source"
    shrinks: ClassVar[bool] = False

    def __init__(
        self,
        source: Any = None,
        target: Any = None,
        *,
        shrinkage: str = "none",
        ridge: float = 1e-5,
        alpha: Alpha = "auto",
        gate: Any = "nearest-mean",
        precision: Precision = "float64",
        folds: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.source = source
        self.target = target
        self.shrinkage = shrinkage
        self.ridge = ridge
        self.alpha = alpha
        self.gate = gate
        self.precision = precision
        self.folds = folds
        self.random_state = random_state

    @abstractmethod
    def _pair(self, source: Moments, target: Moments, s0: Shrinkage, s1: Shrinkage) -> Solution:
        """Return the map that takes ``source`` to ``target``, whose covariances are shrunk by ``s0`` and ``s1``."""

    def _solve(self, moments: ClassMoments, rows: FitRows | None) -> tuple[Method, dict[Label | None, Solution]]:
        sources, target = select_classes(moments, self.source, self.target)
        name = self.shrinkage if self.shrinks else "none"
        solutions: dict[Label | None, Solution] = {
            c: self._between(moments[c], moments[target], *s)
            for c, s in self._shrinkages(name, moments, rows, sources, target).items()
        }
        method = self._method(shrinkage=name, target=target)
        if all(s.alpha == (1.0, 1.0) for s in solutions.values()):
            # pooled altogether, the covariances are left as they are: only the means are matched
            method = replace(method, claims=tuple(claim for claim in method.claims if claim == "means"))
        return method, solutions

    def _shrinkages(
        self, name: str, moments: ClassMoments, rows: FitRows | None, sources: list[Label], target: Label
    ) -> dict[Label, tuple[Shrinkage, Shrinkage]]:
        """Return for each source its shrinkage and the target's; each pair is pooled alone."""
        groups = [[c, target] for c in sources] if alpha_read(name, self.alpha) is not None else [[*sources, target]]
        pairs: dict[Label, tuple[Shrinkage, Shrinkage]] = {}
        for labels in groups:
            used = ClassMoments({label: moments[label] for label in labels})
            s = shrink_classes(name, self.ridge, used, rows, alpha=self.alpha)
            pairs |= {c: (s[c], s[target]) for c in labels if c != target}
        return pairs

    def _between(self, source: Moments, target: Moments, s0: Shrinkage, s1: Shrinkage) -> Solution:
        if s0.pooled is None or s1.pooled is None:
            return self._pair(source, target, s0, s1)
        if s0.share == s1.share == 0:
            return replace(self._pair(source, target, NO_SHRINKAGE, NO_SHRINKAGE), alpha=(0.0, 0.0))
        shrunk = blend(source, target, s0.pooled, s0.share), blend(target, source, s1.pooled, s1.share)
        solution = self._pair(*shrunk, NO_SHRINKAGE, NO_SHRINKAGE)
        left = self._left(solution.map, source, target)
        # the solver's square root is that of the shrunk covariance
        return replace(solution, moved=left, root=None, alpha=(s0.share, s1.share))

    def _left(self, m: AffineMap, source: Moments, target: Moments) -> float:
        """Return the gap ‖WΣ₀Wᵀ − Σ₁‖_F that a map between shrunk covariances leaves."""
        return covariance_distance(pushforward(source, m)[0], target)

    @property
    def alpha_(self) -> dict[Label, Any]:
        """How far the covariances were drawn towards the pooled one; only with ``shrinkage="pooled"``.

        With one source, a dict of its label and the target's label to their α. With several sources, a dict of each
        source's label to the pair (α of the source, α of the target), because each pair is pooled alone.
        """
        records = list(self.certificate_.by_source.values())
        if any(r.alpha_source is None or r.alpha_target is None for r in records):
            raise AttributeError(
                f"{type(self).__name__} pooled no covariances, so that it has no alpha_. Choose shrinkage='pooled'."
            )
        if len(records) > 1:
            return {r.source: (r.alpha_source, r.alpha_target) for r in records}
        return {records[0].source: records[0].alpha_source, records[0].target: records[0].alpha_target}
