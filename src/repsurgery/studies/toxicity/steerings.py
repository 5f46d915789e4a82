"""From a configuration and vectors to a steering function, with its certificates."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import repsurgery as rs
from repsurgery.certificates import Certificate
from repsurgery.certificates.verify import Verdict, verdict_of
from repsurgery.checkpoint import Checkpoint
from repsurgery.errors import ExtrapolationWarning, FileFormatError, GainWarning, ParameterError
from repsurgery.files import digest_of
from repsurgery.gates import Gate, LinearGate
from repsurgery.gates.base import GATES
from repsurgery.lm.load.origin import plain_model_name
from repsurgery.moments import ClassMoments
from repsurgery.moments.by_class import to_contents
from repsurgery.registry import reads
from repsurgery.steering.base import METHODS, BaseSteering
from repsurgery.steering.function import EVERYBODY
from repsurgery.studies.toxicity.configuration import Configuration
from repsurgery.studies.toxicity.spec import ToxicitySpec
from repsurgery.studies.toxicity.vectors import Labelled, Vectors
from repsurgery.studies.toxicity.writing import Steered

__all__ = ["Fitted", "fit_configuration"]


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A configuration's steering, its certificates where the method claims something, and what it was fitted on."""

    configuration: Configuration
    steered: Steered
    certificate: Certificate | None
    held_out: Certificate | None
    verdict: Verdict | None
    facts: dict[str, Any]


def fit_configuration(configuration: Configuration, vectors: Vectors, spec: ToxicitySpec, folder: Path) -> Fitted:
    """Fit one configuration.

    The function is kept in ``folder`` and read from there by later runs: texts are kept under its digest, and a fit
    repeated elsewhere may differ in a last bit.


    A certificate states what the method claims: of LEACE behind a gate, and of a strength other than 1, nothing.
    """
    c = configuration
    data = _data(c, vectors)
    gate = _gate(c, data, vectors, spec)
    # a probe that separates the classes takes the logarithm of 0; the certificate states gains, and the report shows it
    with warnings.catch_warnings(), np.errstate(divide="ignore"):
        warnings.simplefilter("ignore", GainWarning)
        est = _fit(_estimator(c, spec, gate), data)
        # a map for every class behind a gate is no longer what its method makes claims about
        behind_gate = c.scope == "selective" and EVERYBODY in est.maps_
        function = _behind_gate(est, gate, spec) if behind_gate else est.steering_
        claims = c.strength == 1 and not behind_gate
        held = vectors.held_out.get(c.site) if claims and c.fit == "last" else None
        held_out = None if held is None else est.certify(held.X, held.z)
        verdict = None if held is None else _verdict(est, held)
    return Fitted(
        c,
        Steered(_at_strength(_kept(function, c, data, gate, spec, folder), c.strength), c.site, c.strength),
        est.certificate_ if claims else None,
        held_out,
        verdict,
        _facts(data, gate, vectors, c, spec),
    )


def _data(c: Configuration, vectors: Vectors) -> Labelled | ClassMoments:
    if c.fit == "tokens":
        if c.rows:
            raise ParameterError(f"{c.name!r}: rows counts vectors of the other fits. Set token_rows instead.")
        return vectors.tokens[c.site]
    held = (vectors.last if c.fit == "last" else vectors.policy)[c.site]
    fewest = min(_counts(held).values())
    if c.rows > fewest:
        raise ParameterError(f"{c.name!r} asks for {c.rows} vectors of each label; there are {fewest}. Lower rows.")
    return held.first(c.rows)


def _estimator(c: Configuration, spec: ToxicitySpec, gate: Gate | str) -> BaseSteering:
    method = METHODS[c.method]
    params: dict[str, Any] = {"source": spec.source, "target": spec.target, "gate": gate, "ridge": spec.ridge}
    params["shrinkage"] = method.study_shrinkage if c.shrinkage == "preset" else c.shrinkage
    return method(**{name: params[name] for name in method().get_params() if name in params})


def _fit(est: BaseSteering, data: Labelled | ClassMoments) -> BaseSteering:
    return est.fit_moments(data) if isinstance(data, ClassMoments) else est.fit(data.X, data.z)


def _gate(c: Configuration, data: Labelled | ClassMoments, vectors: Vectors, spec: ToxicitySpec) -> Gate | str:
    if c.scope == "all":
        return "always"
    name = "lda" if c.gate == "calibrated" else c.gate
    shrinkage = "oas" if "covariance" in reads(GATES[name]) else None
    rows = (data,) if isinstance(data, ClassMoments) else (data.X, data.z)
    gate = rs.build_gate(name, *rows, shrinkage=shrinkage)
    if c.gate != "calibrated" or not isinstance(gate, LinearGate):
        return gate
    return rs.calibrate_gate(gate, _clean(vectors, c, spec), source=spec.source, rate=spec.false_steer_rate)


def _clean(vectors: Vectors, c: Configuration, spec: ToxicitySpec) -> Any:
    met = vectors.policy[c.site]
    return met.X[met.z == spec.target]


def _behind_gate(est: BaseSteering, gate: Gate | str, spec: ToxicitySpec) -> rs.SteeringFunction:
    assert isinstance(gate, Gate)
    return rs.SteeringFunction({spec.source: est.steering_.maps[None]}, gate, est.steering_.classes)


def _at_strength(function: rs.SteeringFunction, strength: float) -> rs.SteeringFunction:
    if strength == 1:
        return function
    with warnings.catch_warnings():
        # asked for by name, and noted in the record
        warnings.simplefilter("ignore", ExtrapolationWarning)
        return function.interpolate(strength)


def _kept(
    function: rs.SteeringFunction,
    c: Configuration,
    data: Labelled | ClassMoments,
    gate: Gate | str,
    spec: ToxicitySpec,
    folder: Path,
) -> rs.SteeringFunction:
    arrays = _arrays(data) | ({} if isinstance(gate, str) else {f"gate {k}": v for k, v in gate.arrays().items()})
    name = digest_of(arrays, {"configuration": c.name, "ridge": spec.ridge, "steered": [spec.source, spec.target]})
    folder.mkdir(parents=True, exist_ok=True)
    return Checkpoint(folder, _function, lambda path, value: rs.save(value, path)).get(
        name[:16],
        lambda: function.with_origin(model=plain_model_name(spec.model), site=c.site, strength=c.strength),
        label=f"The steering {c.name!r}",
    )


def _function(path: Path) -> rs.SteeringFunction:
    found = rs.load(path)
    if not isinstance(found, rs.SteeringFunction):
        raise FileFormatError(f"{path} holds no steering function.")
    return found


def _arrays(data: Labelled | ClassMoments) -> dict[str, Any]:
    if isinstance(data, ClassMoments):
        return dict(to_contents(data).arrays)
    return {"X": data.X, "z": np.unique(data.z, return_inverse=True)[1]}


def _verdict(est: BaseSteering, held: Labelled) -> Verdict:
    return verdict_of(lambda: est.steering_.verify(held.X, held.z))


def _facts(
    data: Labelled | ClassMoments, gate: Gate | str, vectors: Vectors, c: Configuration, spec: ToxicitySpec
) -> dict[str, Any]:
    found: dict[str, Any] = {"rows": {str(label): count for label, count in _counts(data).items()}}
    met = vectors.policy.get(c.site)
    if isinstance(gate, Gate) and met is not None:
        fired = gate.predict(met.X) == spec.source
        found["gate_on_policy"] = {
            str(label): round(float(np.mean(fired[met.z == label])), 4) for label in np.unique(met.z)
        }
    return found


def _counts(data: Labelled | ClassMoments) -> dict[Any, int]:
    if isinstance(data, ClassMoments):
        return {label: m.count for label, m in data.items()}
    return {label: int(np.sum(data.z == label)) for label in np.unique(data.z)}
