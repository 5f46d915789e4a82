"""Steer the rows of a study with one method, block by block, and certify the result."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import repsurgery as rs
from repsurgery.arrays import Vector, row_blocks
from repsurgery.certificates.verify import Verdict, verdict_of
from repsurgery.errors import ParameterError
from repsurgery.gates import Gate
from repsurgery.steering.base import METHODS, BaseSteering, build_method, method_of_rows
from repsurgery.studies.fairness.rows import Part, StudyRows
from repsurgery.studies.fairness.spec import StudySpec, parse_method, strength_of

__all__ = ["Steered", "balancing_weights", "steer_rows"]


@dataclass(frozen=True, slots=True, eq=False)
class Steered:
    """The rows of each split after steering, with the certificates of the steering.

    Attributes
    ----------
    X : mapping of split to (n, d) array
    certificate, held_out : mapping or None
    verdict : {"supported", "contradicted", "cannot tell"} or None
    """

    X: Mapping[str, NDArray[Any]]
    certificate: Mapping[str, Any] | None = None
    held_out: Mapping[str, Any] | None = None
    verdict: Verdict | None = None


def steer_rows(
    spec: StudySpec, method: str, rows: StudyRows, gate: Gate, concepts: Mapping[str, NDArray[Any]], scratch: Path
) -> Steered:
    """Fit ``method`` on the training rows and steer every split.

    Parameters
    ----------
    concepts : mapping of split to (n,) labels
        The predictions of ``gate``.
    scratch : path
        Folder for the steered rows; they are arrays on disk, so that only one block is in memory.
    """
    if method == "base":
        return Steered({name: part.X for name, part in rows.parts.items()})
    estimator = _estimator(spec, method, gate)
    fit_z = rows.train.z if spec.fit_labels == "gold" else concepts["train"]
    weights = balancing_weights(rows.train.y, fit_z) if spec.fit_weights == "balanced" else None
    estimator.fit(rows.train.X, fit_z, sample_weight=weights)
    strength = strength_of(method)
    steering = estimator.steering_ if strength == 1 else estimator.steering_.interpolate(strength)
    steered = {}
    for name, part in rows.parts.items():
        truth = spec.train_labels if name == "train" else spec.test_labels
        concept = part.z if truth == "gold" else concepts[name]
        steered[name] = _apply(steering, part.X, concept, scratch / f"{name}.npy")
    if strength != 1:  # nothing is claimed of a part of the way
        return Steered(steered)
    held_out, verdict = _audit(estimator, rows.dev, spec)
    return Steered(steered, _finite(estimator.certificate_.to_dict()), held_out, verdict)


def balancing_weights(y: NDArray[Any], z: NDArray[Any]) -> Vector:
    """Return weights (n,) under which every concept has the same mix of labels, namely that of all rows.

    A row of label y and concept z weighs P(y) P(z) / P(y, z); labels that one concept lacks weigh 0.
    """
    labels, y_codes = np.unique(y, return_inverse=True)
    concepts, z_codes = np.unique(z, return_inverse=True)
    joint = np.zeros((len(labels), len(concepts)))
    np.add.at(joint, (y_codes, z_codes), 1.0)
    joint[(joint == 0).any(axis=1)] = 0
    independent = np.outer(joint.sum(axis=1), joint.sum(axis=0)) / joint.sum()
    ratio = np.divide(independent, joint, out=np.zeros_like(joint), where=joint > 0)
    weights: Vector = ratio[y_codes, z_codes]
    return weights


def _estimator(spec: StudySpec, method: str, gate: Gate) -> BaseSteering:
    parsed = parse_method(method)
    if parsed is None:
        raise ParameterError(f"There is no method {method!r}; choose one of {', '.join(METHODS)}.")
    name, shrinkage = parsed[0], parsed[1] or method_of_rows(parsed[0]).study_shrinkage
    return build_method(name, source=spec.source, target=spec.target, gate=gate, shrinkage=shrinkage, ridge=spec.ridge)


def _apply(steering: rs.SteeringFunction, X: NDArray[Any], concept: NDArray[Any], path: Path) -> NDArray[Any]:
    # float32, as encoders return: half the disk space, and the classifiers accept it without conversion
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=X.shape)
    for block in row_blocks(*X.shape):
        out[block] = steering(X[block], concept[block])
    return out


def _audit(estimator: BaseSteering, dev: Part, spec: StudySpec) -> tuple[dict[str, Any] | None, Verdict | None]:
    audited = _audited(dev, spec)
    X, z = np.asarray(dev.X[audited]), dev.z[audited]
    if min(np.unique(z, return_counts=True)[1]) < 5 or len(np.unique(z)) < 2:
        return None, None
    # with fewer rows than dimensions the certificate's probe separates the classes and takes the logarithm of 0
    with np.errstate(divide="ignore"):
        held_out: dict[str, Any] = _finite(estimator.certify(X, z).to_dict())
    return held_out, verdict_of(lambda: estimator.steering_.verify(X, z))


def _audited(dev: Part, spec: StudySpec) -> NDArray[np.intp]:
    order = np.random.default_rng(spec.seed).permutation(len(dev))
    if spec.fit_weights == "balanced":
        # claims about balanced rows are checked on balanced rows: equally many of each label and concept
        cells = np.char.add(np.char.add(dev.y, "\t"), dev.z)[order]
        members = [order[cells == cell] for cell in np.unique(cells)]
        fewest = min(len(rows) for rows in members)
        order = np.concatenate([rows[:fewest] for rows in members])
        order = order[np.random.default_rng(spec.seed).permutation(len(order))]
    return np.sort(order[: spec.audit_rows])


def _finite(value: Any) -> Any:
    # JSON has no infinity and no NaN; None stands for both
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_finite(item) for item in value]
    return value
