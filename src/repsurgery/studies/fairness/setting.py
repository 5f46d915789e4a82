"""One training set, every method: the protocol itself."""

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
from repsurgery.studies.fairness.concept import concept_gate
from repsurgery.studies.fairness.heads import fit_head
from repsurgery.studies.fairness.judging import judge
from repsurgery.studies.fairness.looks import look
from repsurgery.studies.fairness.methods import steer_rows
from repsurgery.studies.fairness.record import Setting
from repsurgery.studies.fairness.remarks import remarked
from repsurgery.studies.fairness.rivals import FairPostProcessing
from repsurgery.studies.fairness.rows import StudyRows
from repsurgery.studies.fairness.spec import StudySpec

__all__ = ["run_setting"]


def run_setting(
    spec: StudySpec, rows: StudyRows, stages: Stages, *, ratio: float | None = None, announce: Announce
) -> Setting:
    """Train the concept classifier, steer, train the task's classifier and measure, each stage kept in ``stages``."""
    announce(f"the concept classifier ({spec.concept_classifier}) on {len(rows.train):,} rows")
    gate, facts = concept_gate(spec, rows.train, stages)
    read = {name: gate.predict(part.X) for name, part in rows.parts.items()}
    done: dict[str, Contents] = {}
    for method in spec.methods:
        if method == "xian":
            continue
        announce(method)
        done[method] = stages.get(method, partial(_steered_stage, spec, method, rows, gate, read, stages))
    if "xian" in spec.methods and rows.has_task:
        announce("xian: post-processing of the base's scores")
        done |= _post_processed(spec, rows, read, stages, done["base"])
    return Setting(
        ratio=ratio,
        sizes={name: len(part) for name, part in rows.parts.items()},
        concept={**_concept_accuracy(rows, read), **facts},
        chance=metrics.chance_level(rows.parts[spec.neighbour_split].z),
        methods=judge(spec, rows, done),
    )


def _steered_stage(
    spec: StudySpec, method: str, rows: StudyRows, gate: Gate, read: Mapping[str, NDArray[Any]], stages: Stages
) -> Contents:
    with stages.scratch() as folder, remarked() as remarks:
        steered = steer_rows(spec, method, rows, gate, read, folder)
        arrays, numbers = look(spec, rows, steered)
        head = fit_head(spec, rows, steered) if rows.has_task else None
    header: dict[str, Any] = {
        "numbers": numbers,
        "certificate": steered.certificate,
        "held_out": steered.held_out,
        "verdict": steered.verdict,
        "classes": [] if head is None else head.classes.tolist(),
        "facts": {} if head is None else head.facts,
    }
    if remarks:
        header["facts"] |= {"remarks": remarks}
    for name, scores in (head.scores if head is not None else {}).items():
        arrays[f"{name}.predicted"] = scores.argmax(axis=1).astype(np.int32)
        if method == "base":
            arrays[f"{name}.scores"] = scores
    return Contents(KIND, header, arrays)


def _post_processed(
    spec: StudySpec, rows: StudyRows, read: Mapping[str, NDArray[Any]], stages: Stages, base: Contents
) -> dict[str, Contents]:
    found = {}
    for criterion in spec.criteria:
        for group in spec.post_groups:
            groups = {name: part.z if group == "gold" else read[name] for name, part in rows.parts.items()}
            for alpha in spec.alphas:
                name = f"xian {criterion} {_short(alpha)} {group}"
                choices = {"criterion": criterion, "alpha": float(alpha), "group": group}
                found[name] = stages.get(name.replace(" ", "-"), partial(_post_stage, base, groups, choices))
    return found


def _short(alpha: float) -> str:
    # every digit: two alphas are never one row
    return repr(float(alpha)).removesuffix(".0")


def _post_stage(base: Contents, groups: Mapping[str, NDArray[Any]], choices: Mapping[str, Any]) -> Contents:
    # fitted on dev scores: those of the training rows are too sure of themselves
    dev, test = (_probabilities(base.arrays[f"{name}.scores"]) for name in ("dev", "test"))
    post = FairPostProcessing(alpha=choices["alpha"], criterion=choices["criterion"]).fit(dev, groups["dev"])
    predicted = np.asarray(post.predict(test, groups["test"]), dtype=np.int32)
    facts = {**choices, "objective": float(post.objective_)}
    return Contents(KIND, {"classes": base.header["classes"], "facts": facts}, {"test.predicted": predicted})


def _probabilities(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    # kept in float32, so the rows sum to 1 only to seven digits
    wide = scores.astype(np.float64)
    normed: NDArray[np.float64] = wide / wide.sum(axis=1, keepdims=True)
    return normed


def _concept_accuracy(rows: StudyRows, read: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    facts = {}
    for name, part in rows.parts.items():
        facts[f"{name}.accuracy"] = float(np.mean(read[name] == part.z))
        facts[f"{name}.majority"] = float(metrics.majority_share(part.z))
    return facts
