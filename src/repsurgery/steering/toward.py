"""`TowardTarget`: the base of estimators that steer each source class to one target by a map of its own."""

from abc import abstractmethod
from typing import Any, ClassVar

from repsurgery.arrays import Label
from repsurgery.certificates.certificate import Population
from repsurgery.certificates.from_moments import Method, Solution
from repsurgery.moments import ClassMoments, Moments
from repsurgery.moments.moments import Precision
from repsurgery.moments.shrinkage import FitRows, Shrinkage, shrink_classes
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
        gate: Any = "nearest-mean",
        precision: Precision = "float64",
        random_state: Any = None,
    ) -> None:
        self.source = source
        self.target = target
        self.shrinkage = shrinkage
        self.ridge = ridge
        self.gate = gate
        self.precision = precision
        self.random_state = random_state

    @abstractmethod
    def _pair(self, source: Moments, target: Moments, s0: Shrinkage, s1: Shrinkage) -> Solution:
        """Return the map that takes ``source`` to ``target``, whose covariances are shrunk by ``s0`` and ``s1``."""

    def _solve(self, moments: ClassMoments, rows: FitRows | None) -> tuple[Method, dict[Label | None, Solution]]:
        sources, target = select_classes(moments, self.source, self.target)
        name = self.shrinkage if self.shrinks else "none"
        used = ClassMoments({label: moments[label] for label in (*sources, target)})
        s = shrink_classes(name, self.ridge, used, rows)
        solutions: dict[Label | None, Solution] = {
            c: self._pair(moments[c], moments[target], s[c], s[target]) for c in sources
        }
        return self._method(shrinkage=name, target=target), solutions
