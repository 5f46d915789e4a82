"""The protocol of a study on one training set, for every method."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery import metrics
from repsurgery.files import Contents
from repsurgery.gates import Gate
from repsurgery.studies.common.clock import Announce
from repsurgery.studies.common.stages import KIND, Stages
from repsurgery.studies.fairness.classification import concept_gate, predict_task
from repsurgery.studies.fairness.measures import measure_rows, method_results
from repsurgery.studies.fairness.methods import steer_rows
from repsurgery.studies.fairness.notes import collected_warnings
from repsurgery.studies.fairness.post_processing import post_process
from repsurgery.studies.fairness.record import Setting
from repsurgery.studies.fairness.rows import StudyRows
from repsurgery.studies.fairness.spec import StudySpec

__all__ = ["run_setting"]


def run_setting(
    spec: StudySpec, rows: StudyRows, stages: Stages, *, ratio: float | None = None, announce: Announce
) -> Setting:
    """Train the concept classifier, steer, train the task's classifier and measure; ``stages`` stores each step."""
    announce(f"the concept classifier ({spec.concept_classifier}) on {len(rows.train):,} rows")
    gate, facts = concept_gate(spec, rows.train, stages)
    concepts = {name: gate.predict(part.X) for name, part in rows.parts.items()}
    finished: dict[str, Contents] = {}
    for method in spec.methods:
        if method == "xian":
            continue
        announce(method)
        finished[method] = stages.get(
            method.replace(" ", "-"), partial(_steer, spec, method, rows, gate, concepts, stages)
        )
    if "xian" in spec.methods and rows.has_task:
        announce("xian: post-processing of the base's scores")
        finished |= post_process(spec, rows, concepts, stages, finished["base"])
    return Setting(
        ratio=ratio,
        sizes={name: len(part) for name, part in rows.parts.items()},
        concept={**_concept_accuracy(rows, concepts), **facts},
        chance=metrics.chance_level(rows.parts[spec.neighbour_split].z),
        methods=method_results(spec, rows, finished),
    )


def _steer(
    spec: StudySpec, method: str, rows: StudyRows, gate: Gate, concepts: Mapping[str, NDArray[Any]], stages: Stages
) -> Contents:
    with stages.scratch() as folder, collected_warnings() as texts:
        steered = steer_rows(spec, method, rows, gate, concepts, folder)
        arrays, numbers = measure_rows(spec, rows, steered)
        probabilities, header = predict_task(spec, rows, steered)
    if texts:
        header["facts"] |= {"remarks": texts}
    for name, scores in probabilities.items():
        arrays[f"{name}.predicted"] = scores.argmax(axis=1).astype(np.int32)
        if method == "base":
            arrays[f"{name}.scores"] = scores
    claims = {"certificate": steered.certificate, "held_out": steered.held_out, "verdict": steered.verdict}
    return Contents(KIND, {"numbers": numbers, **claims, **header}, arrays)


def _concept_accuracy(rows: StudyRows, concepts: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    facts = {}
    for name, part in rows.parts.items():
        facts[f"{name}.accuracy"] = float(np.mean(concepts[name] == part.z))
        facts[f"{name}.majority"] = float(metrics.majority_share(part.z))
    return facts
