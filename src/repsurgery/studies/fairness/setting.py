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
from repsurgery.studies.fairness.record import Setting
from repsurgery.studies.fairness.rivals import FairPostProcessing
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
        finished[method] = stages.get(method, partial(_steer, spec, method, rows, gate, concepts, stages))
    if "xian" in spec.methods and rows.has_task:
        announce("xian: post-processing of the base's scores")
        finished |= _post_process(spec, rows, concepts, stages, finished["base"])
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


def _post_process(
    spec: StudySpec, rows: StudyRows, concepts: Mapping[str, NDArray[Any]], stages: Stages, base: Contents
) -> dict[str, Contents]:
    finished = {}
    for criterion in spec.criteria:
        for group in spec.post_groups:
            groups = {name: part.z if group == "gold" else concepts[name] for name, part in rows.parts.items()}
            for alpha in spec.alphas:
                # every digit, so that two values of alpha are two rows
                name = f"xian {criterion} {repr(float(alpha)).removesuffix('.0')} {group}"
                choices = {"criterion": criterion, "alpha": float(alpha), "group": group}
                finished[name] = stages.get(name.replace(" ", "-"), partial(_post_stage, base, groups, choices))
    return finished


def _post_stage(base: Contents, groups: Mapping[str, NDArray[Any]], choices: Mapping[str, Any]) -> Contents:
    # fitted on dev, because the scores of the training rows are overconfident
    dev, test = (_normalised(base.arrays[f"{name}.scores"]) for name in ("dev", "test"))
    post = FairPostProcessing(alpha=choices["alpha"], criterion=choices["criterion"]).fit(dev, groups["dev"])
    predicted = np.asarray(post.predict(test, groups["test"]), dtype=np.int32)
    facts = {**choices, "objective": float(post.objective_)}
    return Contents(KIND, {"classes": base.header["classes"], "facts": facts}, {"test.predicted": predicted})


def _normalised(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    # stored in float32, so the rows sum to 1 only to seven digits
    wide = scores.astype(np.float64)
    normed: NDArray[np.float64] = wide / wide.sum(axis=1, keepdims=True)
    return normed


def _concept_accuracy(rows: StudyRows, concepts: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    facts = {}
    for name, part in rows.parts.items():
        facts[f"{name}.accuracy"] = float(np.mean(concepts[name] == part.z))
        facts[f"{name}.majority"] = float(metrics.majority_share(part.z))
    return facts
