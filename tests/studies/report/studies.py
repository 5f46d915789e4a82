"""Made-up records of fairness studies, in the layout of real ones."""

from dataclasses import replace

import numpy as np

from repsurgery.studies.common.environment import environment
from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.fairness.record import CosineThumbnail, MethodResult, Setting, StudyRecord

EVIL = "<script>alert('x')</script> a|b [c](http://evil.example) `d` $e$ & \\f"

METHODS = ("base", "leace", "mean", "mimic", "trace", "mimic-oas")
CLASSES = tuple(f"class {i}" for i in range(12))


def around(value, half=0.006):
    return Estimate(value, value - half, value + half)


def method_result(name, tpr, accuracy, *, base, shift=0.0, half=0.006):
    """Return a result whose intervals reach ``half`` to both sides."""
    measures = {
        "test.tpr_gap_rms": around(tpr, half),
        "test.tpr_gap_rms_predicted": Estimate(tpr + 0.001),
        "test.accuracy": around(accuracy, half),
        "test.demographic_parity": Estimate(0.21 - shift / 10),
        "test.equalized_odds": Estimate(0.33 - shift / 10),
        "dev.tpr_gap_rms": around(tpr + 0.02, half),
        "dev.accuracy": around(accuracy + 0.001, half),
        "probe.linear": Estimate(0.97 - shift / 2),
        "probe.mlp": Estimate(0.98 - shift / 2),
        "ebbn": Estimate(5.5 * (1 - shift)),
        "ebbn_u": Estimate(5.6 * (1 - shift)),
    }
    differences = (
        {}
        if name == "base"
        else {
            "test.tpr_gap_rms": around(tpr - base[0], half),
            "test.accuracy": around(accuracy - base[1], half),
            **{f"neighbours.{k}": around(-0.3 * shift) for k in (1, 4, 8, 16, 32, 64, 128)},
        }
    )
    rng = np.random.default_rng(len(name))
    return MethodResult(
        name,
        measures=measures,
        differences=differences,
        gaps={c: None if i == 3 else (-1) ** i * 0.04 * i * (1 - shift) for i, c in enumerate(CLASSES)},
        neighbours={str(k): around(0.86 - 0.02 * i - 0.3 * shift) for i, k in enumerate((1, 4, 8, 16, 32, 64, 128))},
        cosine=CosineThumbnail.of(_cosines(rng, 0.5 * (1 - shift)), 0.5 * (1 - shift), 0.02),
        certificate=None if name == "base" else certificate(1e-14, None),
        held_out=None if name == "base" else certificate(0.21, 0.93),
        supported=None if name == "base" else name != "trace",
        facts={"iterations": 31, "loss": 0.6123},
    )


def _cosines(rng, block):
    z = np.repeat([0, 1], 20)
    matrix = 0.05 * rng.normal(size=(40, 40)) + block * (z[:, None] == z)
    np.fill_diagonal(matrix, 1)
    return matrix


def certificate(gap, youden):
    pair = {"mean_gap_before": 3.25, "covariance_gap_before": 0.42}
    return {"mean_gap": gap, "covariance_gap": gap / 2, "gated_mean_gap": gap, "youden": youden, "by_source": [pair]}


def sweep_result(
    alpha, *, criterion="demographic-parity", group="predicted", tpr=0.14, accuracy=0.76, base=(0.155, 0.8)
):
    plain = method_result(f"xian {criterion} {alpha:g} {group}", tpr, accuracy, base=base)
    return replace(
        plain,
        gaps={},
        neighbours={},
        cosine=None,
        certificate=None,
        held_out=None,
        supported=None,
        facts={"alpha": alpha, "criterion": criterion, "group": group},
    )


def setting_of(results, ratio=None):
    sizes = {"train": 255_710, "dev": 39_369, "test": 98_344}
    concept = {"train.accuracy": 0.991, "dev.accuracy": 0.968, "dev.majority": 0.522, "test.majority": 0.535}
    return Setting(ratio, sizes, concept, 0.501, tuple(results))


def record_of(settings, **changes):
    fields = {
        "experiment": "bios",
        "created": "2026-01-02",
        "spec": {"preset": "paper", "seed": 0, "resamples": 1000, "pca": None, "ratios": [0.5, 0.95]},
        "data": {
            "name": "bias_in_bios",
            "source": "a hub",
            "licence": "MIT",
            "digest": "ab" * 32,
            "counts": {"nurse": {"female": 182_000, "male": 11_000}, "surgeon": {"female": 9_000, "male": 190_000}},
            "cautions": ["Gender is binary in this data."],
        },
        "encoder": {"name": "a-small-encoder", "site": "last", "pooling": "mean", "dim": 384},
        "environment": {"python": "3.11", "repsurgery": environment()["repsurgery"]},
        "seconds": {"encode": 61.25, "fit": 8.5},
        "settings": tuple(settings),
        "notes": ("One run, one seed.",),
    }
    return StudyRecord(**{**fields, **changes})


def bios_record(**changes):
    """Return a biography study with six methods and a sweep."""
    base = (0.155, 0.8)
    figures = {
        "base": base,
        "leace": (0.1371, 0.797),
        "mean": (0.157, 0.799),
        "mimic": (0.0932, 0.7853),
        "trace": (0.12, 0.796),
        "mimic-oas": (0.101, 0.787),
    }
    results = [
        method_result(name, *figures[name], base=base, shift=0.0 if name == "base" else 0.3 + 0.1 * i)
        for i, name in enumerate(METHODS)
    ]
    sweep = [sweep_result(alpha, tpr=0.13 + alpha / 5, accuracy=0.75 + alpha / 3) for alpha in (0.0, 0.01, 0.1)]
    sweep.append(sweep_result(0.0, criterion="equal-opportunity", group="gold", tpr=0.02, accuracy=0.78))
    return record_of([setting_of([*results, *sweep])], **changes)


def dialect_record(ratios=(0.5, 0.65, 0.8, 0.95), **changes):
    """Return a dialect study: the gap of the base grows with the ratio, that of the others does not."""
    settings = []
    for ratio in ratios:
        base = (0.06 + 0.3 * (ratio - 0.5), 0.84 + 0.15 * (ratio - 0.5))
        after = {
            "base": base,
            "mean": (0.03, 0.84 - 0.4 * (ratio - 0.5)),
            "mimic": (0.036, 0.83 - 0.4 * (ratio - 0.5)),
        }
        results = [
            replace(
                method_result(name, *figures, base=base, shift=0.0 if name == "base" else 0.6),
                gaps={"negative": -figures[0], "positive": figures[0]},
                cosine=None,
                neighbours={},
            )
            for name, figures in after.items()
        ]
        settings.append(setting_of(results, ratio))
    fields = {
        "experiment": "dialect",
        "data": {"name": "dialect stand-in", "cautions": ["Dialect is confounded with the corpus."]},
    }
    return record_of(settings, **{**fields, **changes})
