"""What can be seen in the rows themselves: neighbours, cosine blocks, expected bias, probes of the concept."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery import metrics
from repsurgery.studies.fairness.methods import Steered
from repsurgery.studies.fairness.rows import StudyRows
from repsurgery.studies.fairness.spec import StudySpec

__all__ = ["look"]

_SHOWN = 50
"""Rows of each class in the kept picture of the cosine blocks."""


def look(spec: StudySpec, rows: StudyRows, steered: Steered) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return arrays (shares of each query, a cosine picture) and numbers (EBBN, probes) of steered rows."""
    arrays = _neighbours(spec, rows, steered)
    numbers: dict[str, Any] = {}
    dev = rows.dev
    ebbn = partial(metrics.expected_bias_by_neighbours, steered.X["dev"], dev.z, spec.source, spec.target)
    numbers |= {"ebbn": ebbn(), "ebbn_u": ebbn(statistic="u")}
    if spec.cosine_rows:
        picture, within, between = _cosines(spec, steered.X["dev"], dev.z)
        arrays["cosine"] = picture
        numbers |= {"cosine.within": within, "cosine.between": between}
    if spec.probe_rows:
        numbers |= _probes(spec, rows, steered)
    return arrays, numbers


def _neighbours(spec: StudySpec, rows: StudyRows, steered: Steered) -> dict[str, NDArray[Any]]:
    part = rows.parts[spec.neighbour_split]
    first = slice(0, spec.neighbour_rows or None)
    X, z = steered.X[spec.neighbour_split][first], part.z[first]
    counts = [k for k in spec.neighbour_counts if k < len(z)]
    if not counts:
        return {}
    shares = metrics.neighbour_shares(X, z, k=counts, queries=spec.neighbour_queries, seed=spec.seed)
    return {f"share.{k}": share for k, share in shares.items()}


def _cosines(spec: StudySpec, X: NDArray[Any], z: NDArray[Any]) -> tuple[NDArray[np.float32], float, float]:
    if spec.cosine_sample == "first":
        first = np.concatenate([np.flatnonzero(z == c)[: spec.cosine_rows] for c in np.unique(z)])
        X, z = X[first], z[first]
    blocks = metrics.cosine_blocks(X, z, per_class=spec.cosine_rows, seed=spec.seed)
    ordered = z[blocks.rows]
    shown = np.concatenate([np.flatnonzero(ordered == c)[:_SHOWN] for c in np.unique(z)])
    return blocks.similarity[np.ix_(shown, shown)], blocks.within, blocks.between


def _probes(spec: StudySpec, rows: StudyRows, steered: Steered) -> dict[str, float]:
    rng = np.random.default_rng(spec.seed)
    sample = {name: np.sort(rng.permutation(len(part))[: spec.probe_rows]) for name, part in rows.parts.items()}
    X, z = steered.X["train"][sample["train"]], rows.train.z[sample["train"]]
    X_held, z_held = steered.X["test"][sample["test"]], rows.test.z[sample["test"]]
    return {
        "probe.linear": metrics.linear_probe_accuracy(X, z, X_held, z_held),
        "probe.mlp": metrics.mlp_probe_accuracy(X, z, X_held, z_held, seed=spec.seed),
        "probe.majority": metrics.majority_share(z_held),
    }
