"""Made-up records of toxicity studies, in the layout of real ones."""

from dataclasses import replace

import numpy as np

from repsurgery.studies.common.environment import environment
from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.toxicity.record import Configured, Example, ToxicityRecord
from tests.studies.report.studies import certificate

EVIL = "<script>alert('x')</script> a|b [c](http://evil.example) `d` $e$ & \\f"
PROMPTS = 80
SCORERS = ("linear", "bilstm")

# expected maximum toxicity, WikiText word perplexity, share of positions steered
MAIN = {
    ("mean", "selective"): (0.232, 29.21, 0.17),
    ("mean", "all"): (0.147, 30.52, 1.0),
    ("mimic", "selective"): (0.190, 44.91, 0.17),
    ("mimic", "all"): (0.104, 226.4, 1.0),
    ("leace", "selective"): (0.228, 29.9, 0.17),
    ("leace", "all"): (0.205, 33.1, 1.0),
}
BASE = (0.241, 29.03, 0.0)


def around(value, half):
    return Estimate(value, value - half, value + half)


def maxima_of(toxicity, seed=3):
    """Return maxima of prompts around ``toxicity``, alike in all but their scale; the sixth was never scored."""
    rng = np.random.default_rng(seed)
    spread = rng.beta(1.2, 3.5, size=PROMPTS)
    noise = np.random.default_rng(int(toxicity * 1e6)).normal(scale=0.02, size=PROMPTS)
    values = np.clip(spread * toxicity / spread.mean() + noise - noise.mean(), 0, 1)
    return [None if i == 5 else round(float(value), 6) for i, value in enumerate(values)]


def configured(name, figures, *, half=0.02, wikitext=True, scorers=SCORERS, **choices):
    """Return a configuration with intervals that reach ``half`` to both sides; the second scorer sees less toxicity."""
    toxicity, damage, steered = figures
    measures, differences, maxima = {}, {}, {}
    for i, scorer in enumerate(scorers):
        at = toxicity * (1 - 0.1 * i)
        held = {"expected_max_toxicity": at, "toxicity_probability": at / 2, "mean_toxicity": at / 5}
        before = {key: value * BASE[0] / toxicity for key, value in held.items()}
        measures |= {f"{scorer}.{key}": around(value, half) for key, value in held.items()}
        differences |= {f"{scorer}.{key}": around(value - before[key], half / 2) for key, value in held.items()}
        maxima[scorer] = maxima_of(at)
    measures |= {
        "perplexity": around(31.5 + damage / 10, 1.25),
        "distinct.1": around(0.581, 0.004),
        "distinct.2": around(0.853 - steered / 100, 0.004),
        "distinct.3": around(0.851, 0.004),
        "steered": Estimate(steered),
        "kl": Estimate(damage / 100 * steered),
    }
    differences |= {
        "perplexity": around((damage - BASE[1]) / 10, 0.5),
        "distinct.2": around(-steered / 100, 0.003),
    }
    if wikitext:
        measures |= {
            "wikitext.word_perplexity": Estimate(damage),
            "wikitext.byte_perplexity": Estimate(damage**0.2),
        }
    base = name == "base"
    return Configured(
        name,
        choices={"method": "base", "scope": "none"} if base else choices,
        measures=measures,
        differences={} if base else differences,
        maxima=maxima,
        certificate=None if base else certified(1e-14, None, rows=(1540, 34383)),
        held_out=None if base else certified(0.21, 0.93, rows=(400, 8000)),
        supported=None if base else choices["method"] != "leace",
        facts={"rows fitted": 35_923, "texts without score": 3, "perplexities dropped": 1},
    )


def certified(gap, youden, *, rows):
    held = certificate(gap, youden)
    pair = {**held["by_source"][0], "rows_source": rows[0], "rows_target": rows[1]}
    return {**held, "by_source": [pair]}


def choices_of(method, scope, **changes):
    plain = {
        "method": method,
        "scope": scope,
        "fit": "last",
        "gate": "nearest-mean" if scope == "selective" else None,
        "shrinkage": "none",
        "strength": 1.0,
        "site": "final",
        "rows": 2000,
    }
    return {**plain, **changes}


def main_configurations(**changes):
    """Return the base and three methods, selective and on all vectors."""
    return [
        configured("base", BASE, **changes),
        *(
            configured(f"{method}, {scope}", figures, **changes, **choices_of(method, scope))
            for (method, scope), figures in MAIN.items()
        ),
    ]


def ablations(**changes):
    """Return three strengths more of mean matching, two sample sizes, another shrinkage and two other fits."""
    rows = [
        ("mean, all", (0.221, 29.1, 1.0), choices_of("mean", "all", strength=0.25)),
        ("mean, all", (0.196, 29.4, 1.0), choices_of("mean", "all", strength=0.5)),
        ("mean, all", (0.098, 33.3, 1.0), choices_of("mean", "all", strength=2.0)),
        ("mimic, all", (0.125, 461.0, 1.0), choices_of("mimic", "all", rows=1000)),
        ("mimic, all", (0.112, 310.5, 1.0), choices_of("mimic", "all", rows=1500)),
        ("mimic, all", (0.1, 116.2, 1.0), choices_of("mimic", "all", shrinkage="oas")),
        ("mean, all", (0.161, 30.1, 1.0), choices_of("mean", "all", fit="tokens", rows=81_234)),
        ("mimic, selective", (0.201, 31.3, 0.18), _on_policy("mimic", "selective")),
        ("mean, selective", (0.207, 29.4, 0.18), _on_policy("mean", "selective")),
        ("mean, all", (0.197, 29.8, 1.0), _on_policy("mean", "all")),
    ]
    return [
        configured(f"{name} ({i})", figures, **changes, **choices) for i, (name, figures, choices) in enumerate(rows)
    ]


def _on_policy(method, scope):
    gate = "calibrated" if scope == "selective" else None
    return choices_of(method, scope, fit="on-policy", gate=gate, shrinkage="oas", rows=35_923)


def toxicity_record(configurations=None, *, scorers=SCORERS, **changes):
    """Return a study with ablations; texts in two directions and with markup in them."""
    facts = {
        "linear": {
            "name": "alt-profanity-check",
            "version": "1.9.1",
            "digest": "ab" * 32,
            "auc": 0.8834,
            "texts": 9949,
        },
        "bilstm": {
            "name": "a BiLSTM",
            "version": "2",
            "digest": "cd" * 32,
            "auc": 0.9712,
            "spearman": 0.74,
            "texts": 9949,
        },
    }
    held = tuple([*main_configurations(), *ablations()] if configurations is None else configurations)
    names = [c.name for c in held[:3]]
    fields = {
        "experiment": "toxicity",
        "created": "2026-01-02",
        "spec": {"preset": "local", "seed": 0, "resamples": 1000, "strengths": [0.25, 0.5, 1.0, 2.0], "sites": None},
        "data": {
            "name": "jigsaw",
            "source": "a hub",
            "licence": "CC0",
            "digest": "ef" * 32,
            "counts": {"toxic": 15_294, "non-toxic": 144_277},
            "cautions": ["Labels are those of crowd workers."],
        },
        "model": {"name": "smollm2-135m", "description": "quantised", "site": "final", "dim": 576},
        "prompts": {"name": "RealToxicityPrompts", "count": PROMPTS, "samples": 25, "tokens": 20, "toxicity": 0.5},
        "scorers": {key: facts.get(key, {}) for key in scorers},
        "fluency": {"name": "smollm2-135m, unsteered", "prompts": PROMPTS},
        "wikitext": {"name": "wikitext2_raw", "digest": "01" * 32, "documents": 8, "words": 21_000, "bytes": 110_000},
        "environment": {"python": "3.11", "repsurgery": environment()["repsurgery"]},
        "seconds": {"fit": 61.25, "generate": 1808.5},
        "configurations": held,
        "examples": (
            Example("The committee said", dict.fromkeys(names, f" it would {EVIL}")),
            Example("قال الرجل", dict(zip(names, (" إن الأمر\nصعب \u202e😀", "", "\x07\x00"), strict=False))),
        ),
        "notes": ("One run, one seed.",),
    }
    return ToxicityRecord(**{**fields, **changes})


def with_measure(record, name, measure, value, *, half=0.01):
    """Return the record with one measure of a configuration changed, and its difference to the base with it."""
    base = record.configured("base").measures[measure].value

    def changed(c):
        return replace(
            c,
            measures={**c.measures, measure: around(value, half)},
            differences={**c.differences, measure: around(value - base, half)},
        )

    return replace(record, configurations=tuple(changed(c) if c.name == name else c for c in record.configurations))
