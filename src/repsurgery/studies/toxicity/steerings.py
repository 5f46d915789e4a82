"""From a configuration and vectors to a steering function, with its certificates."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import repsurgery as rs
from repsurgery import lm
from repsurgery.certificates import Certificate
from repsurgery.certificates.verify import Verdict, verdict_of
from repsurgery.checkpoint import Checkpoint
from repsurgery.errors import FileFormatError, GainWarning, ParameterError
from repsurgery.files import digest_of
from repsurgery.gates import Gate, LinearGate
from repsurgery.gates.base import GATES
from repsurgery.lm.load.origin import plain_model_name
from repsurgery.moments import ClassMoments
from repsurgery.moments.by_class import to_contents
from repsurgery.origin import ChosenStrength
from repsurgery.registry import reads
from repsurgery.steering.base import METHODS, BaseSteering, build_method, method_of_rows
from repsurgery.steering.function import EVERYBODY
from repsurgery.studies.toxicity.configuration import WITH_MEANS, Configuration
from repsurgery.studies.toxicity.spec import ToxicitySpec
from repsurgery.studies.toxicity.tuned import TunedLine
from repsurgery.studies.toxicity.vectors import Labelled, Vectors

__all__ = ["Fitted", "Round", "fit_configuration", "placed_at", "stored_function"]


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A configuration's steering, its certificates where the method claims something, and facts about the fit."""

    configuration: Configuration | TunedLine
    steering: lm.Placement
    certificate: Certificate | None
    held_out: Certificate | None
    verdict: Verdict | None
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """What a later on-policy round is fitted on: the steering so far, and the steps (n, d) as it left them."""

    before: rs.SteeringFunction
    steps: Labelled


def fit_configuration(
    configuration: Configuration, vectors: Vectors, spec: ToxicitySpec, folder: Path, *, last_round: Round | None = None
) -> Fitted:
    """Fit one configuration.

    The function is stored in ``folder`` and read from there by later runs: texts are stored under its digest, and a
    fit on another machine may differ in the last bit.

    There is a certificate where the method claims something: not for LEACE behind a gate, at a strength other than 1,
    behind a soft gate, nor for a composition of several rounds.
    """
    c = configuration
    if c.from_gradients:
        return _fit_gradients(c, vectors, spec, folder)
    data = _data(c, vectors) if last_round is None else last_round.steps
    gate = _gate(c, data, vectors, spec)
    # a probe that separates the classes takes the logarithm of 0; gains are among the facts, for `gain_notes`
    with warnings.catch_warnings(), np.errstate(divide="ignore"):
        warnings.simplefilter("ignore", GainWarning)
        est = _estimator(c, spec, gate)
        est = est.fit_moments(data) if isinstance(data, ClassMoments) else est.fit(data.X, data.z, groups=data.groups)
        # a map for every class behind a gate is no longer what its method makes claims about
        behind_gate = c.scope == "selective" and EVERYBODY in est.maps_
        softly = isinstance(gate, Gate) and not gate.hard
        claims = c.strength == 1 and not (c.kl or behind_gate or last_round or softly)
        function = est.steering_
        if behind_gate and isinstance(gate, Gate):
            function = function.behind(gate, source=spec.source)
        fresh = vectors.held_out.get(c.site) if claims and c.fit == "last" else None
        held_out = None if fresh is None else est.certify(fresh.X, fresh.z)
        verdict = None if fresh is None else verdict_of(lambda: est.steering_.verify(fresh.X, fresh.z))
    facts = _facts(data, gate, vectors, c, spec) | {"gain": est.certificate_.gain}
    if isinstance(alpha := getattr(est, "alpha_", None), Mapping):
        facts["alpha"] = {str(label): value for label, value in alpha.items()}
    if last_round is not None:
        function = function.after(last_round.before)
    arrays = _arrays(data) | ({} if isinstance(gate, str) else {f"gate {k}": v for k, v in gate.arrays().items()})
    steering, price = _placed(function, c, arrays, vectors, spec, folder)
    return Fitted(c, steering, est.certificate_ if claims else None, held_out, verdict, {**facts, **price})


def _fit_gradients(c: Configuration, vectors: Vectors, spec: ToxicitySpec, folder: Path) -> Fitted:
    G, price = vectors.gradients[c.site], vectors.prices[c.site]
    shift = None
    if c.method.endswith(WITH_MEANS):
        data = _data(c, vectors)
        assert isinstance(data, Labelled)
        means = [data.X[data.z == label].mean(axis=0, dtype=np.float64) for label in (spec.source, spec.target)]
        shift = means[1] - means[0]
    method = METHODS[c.method.removesuffix(WITH_MEANS)]
    assert issubclass(method, rs.NaturalSteering)
    est = method(kl=c.kl, with_shift=shift).fit(G, fisher=price.fisher)
    arrays = {"G": G, "F": price.fisher.matrix} | ({} if shift is None else {"shift": shift})
    steering, facts = _placed(est.steering_, c, arrays, vectors, spec, folder)
    facts |= {"effect": est.certificate_.to_dict(), "policy_prompts": spec.policy_prompts}
    return Fitted(c, steering, None, None, None, facts)


def _placed(
    function: rs.SteeringFunction,
    c: Configuration,
    arrays: dict[str, Any],
    vectors: Vectors,
    spec: ToxicitySpec,
    folder: Path,
) -> tuple[lm.Placement, dict[str, Any]]:
    """Store the function, and return its placement, with facts about its price where the line states one."""
    strength, facts = c.strength, {}
    if c.kl:
        price = vectors.prices[c.site]
        # rounded, so that another order of summation gives the same texts
        strength = float(f"{price.strength(function, c.kl):.6g}")
        facts = {"strength": strength, "predicted_kl": round(price.kl(function.at(strength)), 6)}
    stored = _stored(function, c, strength, arrays, spec, folder)
    return placed_at(stored, c.site, strength), facts


def _data(c: Configuration, vectors: Vectors) -> Labelled | ClassMoments:
    if c.fit == "tokens":
        if c.rows:
            raise ParameterError(f"{c.name!r}: rows limits the vectors of other fits. Set token_rows instead.")
        return vectors.tokens[c.site]
    on_policy = vectors.policy if c.credit == "text" else vectors.steps
    labelled = (vectors.last if c.fit == "last" else on_policy)[c.site]
    fewest = min(_counts(labelled).values())
    if c.rows > fewest:
        raise ParameterError(f"{c.name!r} needs {c.rows} vectors of each label; there are {fewest}. Lower rows.")
    return labelled.first(c.rows)


def _estimator(c: Configuration, spec: ToxicitySpec, gate: Gate | str) -> BaseSteering:
    return build_method(
        c.method,
        source=spec.source,
        target=spec.target,
        gate=gate,
        shrinkage=method_of_rows(c.method).study_shrinkage if c.shrinkage == "preset" else c.shrinkage,
        ridge=spec.ridge,
        alpha=c.alpha,
    )


def _gate(c: Configuration, data: Labelled | ClassMoments, vectors: Vectors, spec: ToxicitySpec) -> Gate | str:
    if c.scope == "all":
        return "always"
    name = "lda" if c.gate in ("calibrated", "soft") else c.gate
    shrinkage = "oas" if "covariance" in reads(GATES[name]) else None
    rows = (data,) if isinstance(data, ClassMoments) else (data.X, data.z)
    seed = spec.seed if "random_state" in reads(GATES[name]) else None
    gate = rs.build_gate(name, *rows, shrinkage=shrinkage, random_state=seed)
    if c.gate not in ("calibrated", "soft") or not isinstance(gate, LinearGate):
        return gate
    policy = vectors.policy[c.site]
    clean = policy.X[policy.z == spec.target]
    if c.gate == "soft":
        return rs.calibrate_soft_gate(gate, clean, source=spec.source)
    return rs.calibrate_gate(gate, clean, source=spec.source, rate=spec.false_steer_rate)


def placed_at(function: rs.SteeringFunction, site: str, strength: float) -> lm.Placement:
    """Return the placement at ``strength``, which may lie beyond the map.

    It gives no warning: the configuration asks for it by name, or a price chose it, and the record notes it.
    """
    return lm.Placement(function, site, ChosenStrength(strength))


def _stored(
    function: rs.SteeringFunction,
    c: Configuration,
    strength: float,
    arrays: dict[str, Any],
    spec: ToxicitySpec,
    folder: Path,
) -> rs.SteeringFunction:
    """Return the function that an earlier run stored for the same fit, or store this one and return it."""
    plugins = METHODS.source(c.method) if c.method in METHODS else {}
    plugins |= GATES.source(c.gate) if c.gate in GATES else {}
    facts = {"configuration": c.name, "ridge": spec.ridge, "steered": [spec.source, spec.target], **plugins}
    origin = {"model": plain_model_name(spec.model), "site": c.site, "strength": strength}
    return stored_function(folder, digest_of(arrays, facts), lambda: function.with_origin(**origin), label=c.name)


def stored_function(
    folder: Path, identity: str, compute: Callable[[], rs.SteeringFunction], *, label: str
) -> rs.SteeringFunction:
    """Return the function in ``folder`` whose digest of what decides it is ``identity``; without one, compute it."""
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = Checkpoint(folder, _function, lambda path, value: rs.save(value, path))
    return checkpoint.get(identity[:16], compute, label=f"The steering {label!r}")


def _function(path: Path) -> rs.SteeringFunction:
    value = rs.load(path)
    if not isinstance(value, rs.SteeringFunction):
        raise FileFormatError(f"{path} does not contain a steering function.")
    return value


def _arrays(data: Labelled | ClassMoments) -> dict[str, Any]:
    if isinstance(data, ClassMoments):
        return dict(to_contents(data).arrays)
    return {"X": data.X, "z": np.unique(data.z, return_inverse=True)[1]}


def _facts(
    data: Labelled | ClassMoments, gate: Gate | str, vectors: Vectors, c: Configuration, spec: ToxicitySpec
) -> dict[str, Any]:
    facts: dict[str, Any] = {"rows": {str(label): count for label, count in _counts(data).items()}}
    policy = vectors.policy.get(c.site)
    if isinstance(gate, Gate) and policy is not None:
        fired = gate.predict(policy.X) == spec.source
        facts["gate_on_policy"] = {
            str(label): round(float(np.mean(fired[policy.z == label])), 4) for label in np.unique(policy.z)
        }
    return facts


def _counts(data: Labelled | ClassMoments) -> dict[Any, int]:
    if isinstance(data, ClassMoments):
        return {label: m.count for label, m in data.items()}
    return {label: int(np.sum(data.z == label)) for label in np.unique(data.z)}
