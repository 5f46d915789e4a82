"""The rows of the post-processing: every criterion, kind of group and alpha, on the scores of the base."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.files import Contents
from repsurgery.studies.common.stages import KIND, Stages
from repsurgery.studies.fairness.post_scores import class_scores, fitted_part, group_shares, with_groups
from repsurgery.studies.fairness.rivals import FairPostProcessing
from repsurgery.studies.fairness.rivals.calibration import VectorScaling
from repsurgery.studies.fairness.rows import StudyRows
from repsurgery.studies.fairness.spec import StudySpec

__all__ = ["post_process"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Probabilities (n, K) with groups (n,), or (n, groups, K) without, and the true classes of the fitted rows."""

    fit: Floats
    test: Floats
    fit_group: NDArray[Any] | None
    test_group: NDArray[Any] | None

    def calibrated(self, y: NDArray[np.intp], z: NDArray[np.intp]) -> "_Rows":
        """Return calibrated probabilities, by group if groups are given; ``y`` and ``z`` (n,) are of the fitted rows.

        Calibration by group is what equal opportunity needs: its rates are sums of probabilities over one group.
        """
        if self.fit_group is None or self.test_group is None:
            n, groups, K = self.fit.shape
            scaling = VectorScaling.fit(self.fit.reshape(n, -1), z * K + y)
            fit, test = (scaling(p.reshape(len(p), -1)).reshape(-1, groups, K) for p in (self.fit, self.test))
            return _Rows(fit, test, None, None)
        fit, test = self.fit.copy(), self.test.copy()
        for a in np.unique(self.fit_group):
            here, there = self.fit_group == a, self.test_group == a
            scaling = VectorScaling.fit(self.fit[here], y[here])
            fit[here], test[there] = scaling(self.fit[here]), scaling(self.test[there])
        return _Rows(fit, test, self.fit_group, self.test_group)


def post_process(
    spec: StudySpec, rows: StudyRows, concepts: Mapping[str, NDArray[Any]], stages: Stages, base: Contents
) -> dict[str, Contents]:
    """Return one finished stage for each criterion, group and alpha; ``concepts`` are the predicted ones by split."""
    classes = np.array(base.header["classes"])
    ending = "" if spec.post_rows == "dev" else f"-{spec.post_rows}"
    calibration = "" if spec.post_calibration == "none" else f"-{spec.post_calibration}"
    scores = stages.get(f"post-scores{ending}", partial(class_scores, spec, rows, base)).arrays
    gold = {name: part.z for name, part in rows.parts.items()}
    y = np.searchsorted(classes, fitted_part(spec, {name: part.y for name, part in rows.parts.items()}))
    z = np.unique(fitted_part(spec, gold), return_inverse=True)[1]
    finished = {}
    for group in spec.post_groups:
        if group == "blind":
            shares = stages.get(f"post-groups{ending}", partial(group_shares, spec, rows, classes)).arrays
            joint = {name: with_groups(scores[name], shares[name]) for name in scores}
            given = _Rows(_normalised(fitted_part(spec, joint)), _normalised(joint["test"]), None, None)
        else:
            labels = gold if group == "gold" else concepts
            fit, test = (_normalised(p) for p in (fitted_part(spec, scores), scores["test"]))
            given = _Rows(fit, test, fitted_part(spec, labels), labels["test"])
        if spec.post_calibration != "none":
            given = given.calibrated(y, z)
        for criterion in spec.criteria:
            for alpha in spec.alphas:
                # every digit, so that two values of alpha are two rows
                name = f"xian {criterion} {repr(float(alpha)).removesuffix('.0')} {group}"
                choices = {"criterion": criterion, "alpha": float(alpha), "group": group}
                stage = f"{name.replace(' ', '-')}{ending}{calibration}"
                finished[name] = stages.get(stage, partial(_post_stage, given, choices, classes.tolist()))
    return finished


def _post_stage(given: _Rows, choices: Mapping[str, Any], classes: list[str]) -> Contents:
    post = FairPostProcessing(alpha=choices["alpha"], criterion=choices["criterion"]).fit(given.fit, given.fit_group)
    predicted = np.asarray(post.predict(given.test, given.test_group), dtype=np.int32)
    facts = {**choices, "objective": float(post.objective_)}
    return Contents(KIND, {"classes": classes, "facts": facts}, {"test.predicted": predicted})


def _normalised(scores: NDArray[Any]) -> Floats:
    # stored in float32, so that those of a row sum to 1 only to seven digits
    wide = scores.astype(np.float64)
    normed: Floats = wide / wide.sum(axis=tuple(range(1, wide.ndim)), keepdims=True)
    return normed
