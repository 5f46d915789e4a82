"""Measures of steered rows and of predictions, each with its interval and its difference from the base."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery import metrics
from repsurgery.certificates.verify import as_support
from repsurgery.files import Contents
from repsurgery.metrics import Bootstrapped, Mean
from repsurgery.metrics.significance import enough_resamples
from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.fairness.methods import Steered
from repsurgery.studies.fairness.record import CosineThumbnail, MethodResult, is_sweep
from repsurgery.studies.fairness.rows import StudyRows
from repsurgery.studies.fairness.spec import StudySpec

__all__ = ["measure_rows", "method_results", "tests_of"]

_SHOWN = 50
"""Rows of each class in the thumbnail of the cosine blocks."""

Estimates = dict[str, dict[str, Estimate]]
"""Method to measure to estimate."""


def measure_rows(spec: StudySpec, rows: StudyRows, steered: Steered) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return arrays (neighbour shares of each query, cosine thumbnail) and numbers (EBBN, probes) of steered rows."""
    X, z = steered.X["dev"], rows.dev.z
    arrays = _neighbour_shares(spec, rows, steered)
    ebbn = partial(metrics.expected_bias_by_neighbours, X, z, spec.source, spec.target)
    numbers: dict[str, Any] = {"ebbn": ebbn(), "ebbn_u": ebbn(statistic="u")}
    if spec.cosine_rows:
        arrays["cosine"], within, between = _cosines(spec, X, z)
        numbers |= {"cosine.within": within, "cosine.between": between}
    if spec.probe_rows:
        numbers |= _probes(spec, rows, steered)
    return arrays, numbers


def _neighbour_shares(spec: StudySpec, rows: StudyRows, steered: Steered) -> dict[str, NDArray[Any]]:
    first = slice(0, spec.neighbour_rows or None)
    X, z = steered.X[spec.neighbour_split][first], rows.parts[spec.neighbour_split].z[first]
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
    X_test, z_test = steered.X["test"][sample["test"]], rows.test.z[sample["test"]]
    return {
        "probe.linear": metrics.linear_probe_accuracy(X, z, X_test, z_test),
        "probe.mlp": metrics.mlp_probe_accuracy(X, z, X_test, z_test, seed=spec.seed),
        "probe.majority": metrics.majority_share(z_test),
    }


def tests_of(spec: StudySpec, names: Iterable[str]) -> int:
    """Return the largest number of tests of one measure that a report corrects together, over settings and methods."""
    sweep = [is_sweep(name) for name in names if name != "base"]
    return max(1, len(spec.ratios)) * max(1, sum(sweep), len(sweep) - sum(sweep))


def method_results(spec: StudySpec, rows: StudyRows, stages: Mapping[str, Contents]) -> tuple[MethodResult, ...]:
    """Return one result per stage, the base first."""
    measures: Estimates = {name: {} for name in stages}
    differences: Estimates = {name: {} for name in stages}
    spec = replace(spec, resamples=enough_resamples(tests_of(spec, stages), spec.resamples))
    for split in ("dev", "test"):
        _measure_predictions(spec, rows, stages, split, measures, differences)
    neighbours = _measure_neighbours(spec, stages, differences)
    results = []
    for name, stage in stages.items():
        numbers = stage.header.get("numbers", {})
        results.append(
            MethodResult(
                method=name,
                measures={
                    **measures[name],
                    **{key: Estimate(value) for key, value in numbers.items() if not key.startswith("cosine")},
                },
                differences=differences[name],
                gaps=_gaps(rows, stage),
                neighbours=neighbours[name],
                cosine=_thumbnail(stage),
                certificate=stage.header.get("certificate"),
                held_out=stage.header.get("held_out"),
                supported=as_support(stage.header.get("verdict")),
                facts=stage.header["facts"],
                verdict=stage.header.get("verdict"),
            )
        )
    return tuple(results)


def _predictions(stage: Contents, split: str) -> NDArray[np.str_] | None:
    codes = stage.arrays.get(f"{split}.predicted")
    return None if codes is None else np.array(stage.header["classes"])[codes]


def _measure_predictions(
    spec: StudySpec,
    rows: StudyRows,
    stages: Mapping[str, Contents],
    split: str,
    measures: Estimates,
    differences: Estimates,
) -> None:
    y, z = rows.parts[split].y, rows.parts[split].z
    predictions = {name: y_hat for name, stage in stages.items() if (y_hat := _predictions(stage, split)) is not None}
    if not predictions:
        return
    if not any(len(np.unique(z[y == c])) == 2 for c in np.unique(y)):  # no class has both groups
        for name, y_hat in predictions.items():
            measures[name][f"{split}.accuracy"] = Estimate(metrics.accuracy(y, y_hat))
        return
    intervals = metrics.fairness_intervals(y, predictions, z, resamples=spec.resamples, seed=spec.seed)
    for name, y_hat in predictions.items():
        for measure in ("accuracy", "tpr_gap_rms", "tpr_gap_rms_predicted"):
            one: Bootstrapped | None = getattr(intervals[name], measure)
            if one is None:
                continue
            measures[name][f"{split}.{measure}"] = Estimate.of(one.estimate)
            if one.difference is not None:
                differences[name][f"{split}.{measure}"] = Estimate.of(one.difference, one.p_value)
        plain = {
            "tpr_gap_noise": metrics.tpr_gap_noise(y, y_hat, z),
            "demographic_parity": metrics.demographic_parity_difference(y_hat, z),
            "equalized_odds": metrics.equalized_odds_difference(y, y_hat, z),
        }
        measures[name] |= {f"{split}.{measure}": Estimate(value) for measure, value in plain.items()}


def _measure_neighbours(spec: StudySpec, stages: Mapping[str, Contents], differences: Estimates) -> Estimates:
    neighbours: Estimates = {name: {} for name in stages}
    for k in spec.neighbour_counts:
        shares = {name: stage.arrays[f"share.{k}"] for name, stage in stages.items() if f"share.{k}" in stage.arrays}
        if not shares:
            continue
        # the bootstrap resamples queries, which are the same for every method
        drawn = metrics.paired_bootstrap(
            {name: Mean(share) for name, share in shares.items()},
            len(shares["base"]),
            resamples=spec.resamples,
            seed=spec.seed,
            reference="base",
        )
        for name, one in drawn.items():
            neighbours[name][str(k)] = Estimate.of(one.estimate)
            if one.difference is not None:
                differences[name][f"neighbours.{k}"] = Estimate.of(one.difference, one.p_value)
    return neighbours


def _gaps(rows: StudyRows, stage: Contents) -> dict[str, float | None]:
    y_hat = _predictions(stage, "test")
    if y_hat is None:
        return {}
    return {str(c): gap for c, gap in metrics.tpr_gap(rows.test.y, y_hat, rows.test.z).items()}


def _thumbnail(stage: Contents) -> CosineThumbnail | None:
    if "cosine" not in stage.arrays:
        return None
    numbers = stage.header["numbers"]
    return CosineThumbnail.of(stage.arrays["cosine"], numbers["cosine.within"], numbers["cosine.between"])
