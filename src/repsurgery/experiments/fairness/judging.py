"""Predictions and looks turned into results: every number with its interval, paired with the base's."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from repsurgery import metrics
from repsurgery.experiments.fairness.rows import StudyRows
from repsurgery.experiments.fairness.spec import StudySpec
from repsurgery.files import Contents
from repsurgery.results import CosineThumbnail, Estimate, MethodResult

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
                supported=held.header.get("supported"),
                facts=held.header["facts"],
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
    intervals = metrics.fairness_intervals(part.y, predictions, part.z, resamples=spec.resamples, seed=spec.seed)
    for name, y_hat in predictions.items():
        here, change = measures[name], differences[name]
        for measure, interval in intervals[name].items():
            here[f"{split}.{measure}"] = Estimate(interval.value, interval.low, interval.high)
            if name != "base" and interval.difference is not None:
                d = interval.difference
                change[f"{split}.{measure}"] = Estimate(d.value, d.low, d.high)
        here[f"{split}.tpr_gap_rms_predicted"] = Estimate(metrics.tpr_gap_rms_predicted(part.y, y_hat, part.z))
        here[f"{split}.demographic_parity"] = Estimate(metrics.demographic_parity_difference(y_hat, part.z))
        here[f"{split}.equalized_odds"] = Estimate(metrics.equalized_odds_difference(part.y, y_hat, part.z))
