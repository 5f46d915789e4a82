"""The measures of a study are tested often enough for the correction that its report makes."""

from dataclasses import replace

import numpy as np
import pytest

from repsurgery.files import Contents
from repsurgery.studies.common.report.numbers import is_significant
from repsurgery.studies.common.stages import KIND
from repsurgery.studies.fairness import make_spec
from repsurgery.studies.fairness.measures import method_results
from repsurgery.studies.fairness.record import Setting
from repsurgery.studies.fairness.report.significance import adjusted_study
from repsurgery.studies.fairness.rows import SPLITS, Part, StudyRows
from tests.studies.report.studies import bios_record, dialect_record

SWEEP = [f"xian equal-opportunity {alpha} gold" for alpha in range(1, 28)]
FAMILIES = {
    "30 rows, three methods at ten ratios": (make_spec("dialect"), ["leace", "mean", "mimic"], dialect_record),
    "27 rows of a sweep": (make_spec("bios", neighbour_counts=[]), ["mimic", *SWEEP], bios_record),
}


def predictions(y, z, misses, seed):
    """Return labels of which a share is wrong in one group alone."""
    wrong = (z == "1") & (np.random.default_rng(seed).random(len(y)) < misses)
    return np.where(wrong, 1 - y, y).astype(np.int32)


def stages(methods, seed, *, misses):
    """Return rows, and finished stages with a gap in the predictions of the base and ``misses`` in all others."""
    rng = np.random.default_rng(seed)
    parts, of = {}, {name: {} for name in ("base", *methods)}
    for split in SPLITS:
        y, z = rng.integers(2, size=500), rng.integers(2, size=500).astype(str)
        parts[split] = Part(np.zeros((500, 1)), y.astype(str), z)
        for i, name in enumerate(of):
            of[name][f"{split}.predicted"] = predictions(y, z, misses if i else 0.8, [seed, i])
    header = {"facts": {}, "classes": ["0", "1"], "numbers": {}}
    return StudyRows(**parts), {name: Contents(KIND, header, arrays) for name, arrays in of.items()}


def study(family, misses):
    """Return the record of a study of this family, with its p-values adjusted as its report does."""
    spec, methods, record = FAMILIES[family]
    settings = []
    for seed, ratio in enumerate(spec.ratios or (None,)):
        results = method_results(spec, *stages(methods, seed, misses=misses))
        settings.append(Setting(ratio, {}, {}, 0.5, results))
    return adjusted_study(replace(record(), settings=tuple(settings)))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_verdict_of_a_study_with_a_large_effect_can_be_significant(family):
    for setting in study(family, misses=0.1).settings:
        for result in setting.methods[1:]:
            for key in ("test.tpr_gap_rms", "test.tpr_gap_rms_predicted", "test.accuracy", "dev.tpr_gap_rms"):
                assert is_significant(result.differences[key]), (result.method, key)


def test_no_verdict_of_a_study_without_an_effect_is_significant():
    (setting,) = study("27 rows of a sweep", misses=0.8).settings
    rows = [setting.method(name) for name in SWEEP]
    assert not any(is_significant(row.differences["test.tpr_gap_rms"]) for row in rows)
