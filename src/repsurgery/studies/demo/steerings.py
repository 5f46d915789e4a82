"""The three methods of the demonstration, selective and on all vectors, with their certificates."""

import warnings
from dataclasses import dataclass

import numpy as np

import repsurgery as rs
from repsurgery.arrays import Labels, Matrix, Rows
from repsurgery.certificates.verify import verdict_of
from repsurgery.errors import GainWarning
from repsurgery.studies.demo.record import CertifiedMap, Cloud, Scope

__all__ = ["Fitted", "Split", "clouds", "fit_all"]


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Rows with labels, for fitting and for judging the fit."""

    X: Rows
    z: Labels
    X_held: Rows
    z_held: Labels


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """One configuration: its steering, and its certificates where the method claims something about it."""

    method: str
    scope: Scope
    steering: rs.SteeringFunction
    certified: CertifiedMap | None


def fit_all(split: Split, source: str, target: str) -> list[Fitted]:
    """Fit mean matching, MiMiC and LEACE on ``split``, each for the gate's vectors and for all.

    Covariances of fewer rows than dimensions are singular, so MiMiC and LEACE shrink theirs (OAS).
    """
    found: list[Fitted] = []
    scopes: tuple[tuple[Scope, str], ...] = (("selective", "nearest-mean"), ("all", "always"))
    # with fewer rows than dimensions the certificate's probe separates the classes, and takes the logarithm of 0
    with warnings.catch_warnings(), np.errstate(divide="ignore"):
        # the certificate states the gain, and the report shows it
        warnings.simplefilter("ignore", GainWarning)
        for method, shrinkage in ((rs.MeanMatching, "none"), (rs.MiMiC, "oas")):
            for scope, gate in scopes:
                est = method(source, target, shrinkage=shrinkage, gate=gate).fit(split.X, split.z)
                found.append(_certified(est, scope, split))
        leace = _certified(rs.LEACE(shrinkage="oas").fit(split.X, split.z), "all", split)
    # LEACE claims something about everybody erased; behind a gate its map keeps no such promise, so no certificate
    behind_gate = rs.SteeringFunction(
        {source: leace.steering.maps[None]}, found[0].steering.gate, leace.steering.classes
    )
    return [*found, Fitted("LEACE", "selective", behind_gate, None), leace]


def _certified(est: rs.MeanMatching | rs.MiMiC | rs.LEACE, scope: Scope, split: Split) -> Fitted:
    method = type(est).__name__
    fitted, held_out = est.certify(split.X, split.z), est.certify(split.X_held, split.z_held)
    verdict = verdict_of(lambda: est.steering_.verify(split.X_held, split.z_held))
    return Fitted(method, scope, est.steering_, CertifiedMap(method, scope, fitted, held_out, verdict))


def clouds(split: Split, fitted: list[Fitted], source: str, target: str) -> list[Cloud]:
    """Return the held-out rows before and after each selective steering, in directions of the fitted rows."""
    axes = _axes(split, source, target)
    centre = split.X.mean(axis=0)
    views = [("held-out texts, untouched", split.X_held)]
    views += [(f"{f.method}, {f.scope}", f.steering(split.X_held)) for f in fitted]
    return [Cloud(title, (np.asarray(X, dtype=np.float64) - centre) @ axes.T, split.z_held) for title, X in views]


def _axes(split: Split, source: str, target: str) -> Matrix:
    X = np.asarray(split.X, dtype=np.float64)
    gap = X[split.z == target].mean(axis=0) - X[split.z == source].mean(axis=0)
    along = gap / np.linalg.norm(gap)
    rest = X - X.mean(axis=0)
    rest -= np.outer(rest @ along, along)
    return np.stack([along, np.linalg.svd(rest, full_matrices=False)[2][0]])
