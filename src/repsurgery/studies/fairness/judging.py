"""Predictions and looks turned into results: every number with its interval, paired with the base's."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from repsurgery import metrics
from repsurgery.certificates.verify import as_support
from repsurgery.files import Contents
from repsurgery.metrics import Bootstrapped, Mean
from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.fairness.record import CosineThumbnail, MethodResult
from repsurgery.studies.fairness.rows import Part, StudyRows
from repsurgery.studies.fairness.spec import StudySpec

__all__ = ["judge"]


def judge(spec: StudySpec, rows: StudyRows, stages: Mapping[str, Contents]) -> tuple[MethodResult, ...]:
    """Return one result per stage, the base first."""
    measures: dict[str, dict[str, Estimate]] = {name: {} for name in stages}
    differences: dict[str, dict[str, Estimate]] = {name: {} for name in stages}
    for split in ("dev", "test"):
        _judge_predictions(spec, rows, stages, split, measures, differences)
    neighbours, changes = _judge_neighbours(spec, stages)
    results = []
    for name, held in stages.items():
        numbers = held.header.get("numbers", {})
        plain = {key: Estimate(value) for key, value in numbers.items() if not key.startswith("cosine")}
        results.append(
            MethodResult(
                method=name,
                measures={**measures[name], **plain},
                differences={**differences[name], **changes.get(name, {})},
                gaps=_gaps(rows, held),
                neighbours=neighbours.get(name, {}),
                cosine=_thumbnail(held),
                certificate=held.header.get("certificate"),
                held_out=held.header.get("held_out"),
                supported=as_support(held.header.get("verdict")),
                facts=held.header["facts"],
                verdict=held.header.get("verdict"),
            )
        )
    return tuple(results)


def _predicted(held: Contents, split: str) -> NDArray[np.str_] | None:
    codes = held.arrays.get(f"{split}.predicted")
    return None if codes is None else np.array(held.header["classes"])[codes]


def _judge_predictions(
    spec: StudySpec,
    rows: StudyRows,
    stages: Mapping[str, Contents],
    split: str,
    measures: dict[str, dict[str, Estimate]],
    differences: dict[str, dict[str, Estimate]],
) -> None:
    part = rows.parts[split]
    found = {name: _predicted(held, split) for name, held in stages.items()}
    predictions = {name: y_hat for name, y_hat in found.items() if y_hat is not None}
    if not predictions:
        return
    if not _comparable(part):
        for name, y_hat in predictions.items():
            measures[name][f"{split}.accuracy"] = Estimate(metrics.accuracy(part.y, y_hat))
        return
    intervals = metrics.fairness_intervals(part.y, predictions, part.z, resamples=spec.resamples, seed=spec.seed)
    for name, y_hat in predictions.items():
        here = measures[name]
        for measure in ("accuracy", "tpr_gap_rms", "tpr_gap_rms_predicted"):
            one: Bootstrapped | None = getattr(intervals[name], measure)
            if one is None:
                continue
            here[f"{split}.{measure}"] = Estimate.of(one.estimate)
            if one.difference is not None:
                differences[name][f"{split}.{measure}"] = Estimate.of(one.difference, one.p_value)
        plain = {
            "tpr_gap_noise": metrics.tpr_gap_noise(part.y, y_hat, part.z),
            "demographic_parity": metrics.demographic_parity_difference(y_hat, part.z),
            "equalized_odds": metrics.equalized_odds_difference(part.y, y_hat, part.z),
        }
        here |= {f"{split}.{measure}": Estimate(value) for measure, value in plain.items()}


def _comparable(part: Part) -> bool:
    return any(len(np.unique(part.z[part.y == c])) == 2 for c in np.unique(part.y))


def _judge_neighbours(
    spec: StudySpec, stages: Mapping[str, Contents]
) -> tuple[dict[str, dict[str, Estimate]], dict[str, dict[str, Estimate]]]:
    found: dict[str, dict[str, Estimate]] = {}
    changes: dict[str, dict[str, Estimate]] = {}
    for k in spec.neighbour_counts:
        shares = {name: held.arrays[f"share.{k}"] for name, held in stages.items() if f"share.{k}" in held.arrays}
        if not shares:
            continue
        # the queries are the sample, and every method was asked the same ones
        drawn = metrics.paired_bootstrap(
            {name: Mean(share) for name, share in shares.items()},
            len(shares["base"]),
            resamples=spec.resamples,
            seed=spec.seed,
            reference="base",
        )
        for name, one in drawn.items():
            found.setdefault(name, {})[str(k)] = Estimate.of(one.estimate)
            if one.difference is not None:
                changes.setdefault(name, {})[f"neighbours.{k}"] = Estimate.of(one.difference, one.p_value)
    return found, changes


def _gaps(rows: StudyRows, held: Contents) -> dict[str, float | None]:
    y_hat = _predicted(held, "test")
    if y_hat is None:
        return {}
    return {str(c): gap for c, gap in metrics.tpr_gap(rows.test.y, y_hat, rows.test.z).items()}


def _thumbnail(held: Contents) -> CosineThumbnail | None:
    if "cosine" not in held.arrays:
        return None
    numbers = held.header["numbers"]
    return CosineThumbnail.of(held.arrays["cosine"], numbers["cosine.within"], numbers["cosine.between"])
