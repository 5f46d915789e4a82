"""A made-up record that holds every rival beside affine steerings, in the layout of a real one."""

from functools import cache

import numpy as np

from repsurgery.metrics import Mean, paired_bootstrap
from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.toxicity.record import Configured
from tests.studies.report.toxicity_records import choices_of, toxicity_record

PROMPTS, FEW = 100, 10
SCORERS = ("minilm", "bilstm", "linear")
_HARSHNESS = {"minilm": 1.0, "bilstm": 0.6, "linear": 0.68}

# line, choices, expected max toxicity by the first scorer, perplexity, cost per token, training seconds, passes
RIVALS = (
    ("dapt", {"steps": 400}, 0.405, 27.1, 1.0, 1500.0, 0.0),
    ("gedi", {"omega": 30.0}, 0.331, 55.4, 2.9, 2100.0, 1.0),
    ("pplm", {"steps": 10}, 0.47, 33.0, 33.4, 240.0, 31.0),
    ("uddia", {}, 0.40, 29.5, 9.2, 40.0, 7.1),
    ("dexperts", {"alpha": 2.0}, 0.279, 31.2, 2.6, 3100.0, 2.0),
    ("goodtriever", {"alpha": 2.0}, 0.302, 33.4, 1.9, 800.0, 0.0),
    ("self-debias", {"decay": 50.0}, 0.431, 28.8, 2.1, None, 1.0),
    ("instruction", {}, 0.497, 25.9, 1.1, None, 0.0),
    ("linear-act", {"strength": 1.0}, 0.377, 27.4, 1.05, 95.0, 0.0),
    ("aura", {}, 0.452, 25.6, 1.02, 120.0, 0.0),
    ("destein", {"strength": 0.4}, 0.384, 27.9, 1.1, 310.0, 0.0),
    ("destein-per-head", {"strength": 0.4}, 0.383, 27.8, 1.1, 310.0, 0.0),
    ("repeng", {"strength": 1.0}, 0.41, 28.4, 1.03, 75.0, 0.0),
)
_ON_POLICY = {"fit": "on-policy", "kl": 0.05}
STEERINGS = (
    ("mean selective", choices_of("mean", "selective"), 0.41, 30.6),
    ("mean all", choices_of("mean", "all"), 0.405, 31.7),
    ("mimic selective", choices_of("mimic", "selective"), 0.29, 57.0),
    ("mimic all", choices_of("mimic", "all"), 0.286, 61.7),
    ("mean all fit=on-policy kl=0.05", choices_of("mean", "all", **_ON_POLICY), 0.400, 26.1),
    (
        "mimic all fit=on-policy shrinkage=pooled kl=0.05",
        choices_of("mimic", "all", shrinkage="pooled", **_ON_POLICY),
        0.398,
        26.3,
    ),
    ("natural all fit=on-policy kl=0.05", choices_of("natural", "all", **_ON_POLICY), 0.376, 25.8),
    ("natural-mean all fit=on-policy kl=0.07", choices_of("natural-mean", "all", **_ON_POLICY), 0.328, 24.6),
    ("tuned kl=0.15", {"method": "tuned", "kl": 0.15, "effort": "normal"}, 0.29, 26.7),
)
BASE = (0.513, 24.8)
NEEDS = {
    "dexperts": "labelled texts; two adapters",
    "gedi": "labelled texts; a guide",
    "instruction": "a chat template",
    "pplm": "labelled texts; a head; gradients",
}


def rival_record(rows=None, **changes):
    """Return a study of 23 rows; pplm and uddia cover the first tenth of the prompts."""
    held = configurations() if rows is None else tuple(rows)
    fields = {
        "scorers": {key: {"name": key, "version": "1"} for key in SCORERS},
        "fluency": {"name": "smollm2-135m", "prompts": PROMPTS, "further": ["gemma-3-270m"]},
        "prompts": {"name": "RealToxicityPrompts", "count": PROMPTS, "samples": 25, "tokens": 20},
        "examples": (),
    }
    return toxicity_record(held, **{**fields, **changes})


@cache
def configurations():
    """Return every row, with intervals and tests of what `paired_bootstrap` finds in the maxima."""
    rows = [("base", {"method": "base", "scope": "none"}, *BASE, 1.0, None, 0.0)]
    rows += [(_line(name, options), {"method": name, **options}, *rest) for name, options, *rest in RIVALS]
    rows += [(*steering, 1.01, 300.0, 0.0) for steering in STEERINGS]
    maxima = {row[0]: {s: maxima_of(row[2] * _HARSHNESS[s], row[0], row[0] in SHORT) for s in SCORERS} for row in rows}
    intervals = {s: _intervals({name: held[s] for name, held in maxima.items()}) for s in SCORERS}
    return tuple(_configured(row, maxima[row[0]], {s: intervals[s][row[0]] for s in SCORERS}) for row in rows)


SHORT = ("pplm steps=10", "uddia")


def _line(name, options):
    return " ".join([name, *(f"{key}={value:g}" for key, value in options.items())])


def maxima_of(toxicity, name, short=False):
    """Return each prompt's highest score: prompts differ alike under every row; None where a row has no score."""
    hard = np.random.default_rng(1).beta(2, 3, size=PROMPTS)
    noise = np.random.default_rng([ord(letter) for letter in name]).normal(scale=0.07, size=PROMPTS)
    scores = np.clip(hard * toxicity / hard.mean() + noise - noise.mean(), 0, 1)
    return [None if i == 5 or (short and i >= FEW) else round(float(score), 4) for i, score in enumerate(scores)]


def _intervals(maxima):
    """Return intervals and tests; a row on fewer prompts is compared with the base on these."""
    means = {name: np.array([np.nan if m is None else m for m in held]) for name, held in maxima.items()}
    every = _bootstrapped({name: held for name, held in means.items() if name not in SHORT})
    few = _bootstrapped({name: held[:FEW] for name, held in means.items() if name in ("base", *SHORT)})
    return {**few, **every}


def _bootstrapped(values):
    n = len(values["base"])
    return paired_bootstrap({name: Mean(held) for name, held in values.items()}, n, resamples=200, reference="base")


def _configured(row, maxima, intervals):
    name, choices, _, perplexity, cost, seconds, passes = row
    measures, differences = {}, {}
    for scorer, one in intervals.items():
        held = [m for m in maxima[scorer] if m is not None]
        measures[f"{scorer}.expected_max_toxicity"] = Estimate.of(one.estimate)
        measures[f"{scorer}.toxicity_probability"] = Estimate(sum(m > 0.5 for m in held) / len(held))
        if one.difference is not None:
            differences[f"{scorer}.expected_max_toxicity"] = Estimate.of(one.difference, one.p_value)
    for key, times in (("perplexity", 1.0), ("perplexity.gemma-3-270m", 2.9)):
        measures[key] = Estimate(times * perplexity, times * perplexity - 2, times * perplexity + 2)
        if name != "base":
            differences[key] = Estimate(times * (perplexity - BASE[1]))
    measures |= {f"distinct.{n}": Estimate(value) for n, value in ((1, 0.58), (2, 0.85), (3, 0.85))}
    method = choices["method"]
    # the base has another peak in the process that measured a rival
    facts = {"peak_bytes_base": int(1.0e9) if "scope" not in choices else int(1.1e9)}
    facts |= {"cost_per_continuation": {"tokens_read": 6.0, "tokens_written": 19.5, "extra_passes": 19.5 * passes}}
    if "scope" not in choices and method != "tuned":
        facts["needs"] = NEEDS.get(method, "labelled texts")
        if seconds is not None:
            facts["parts"] = {f"{method} part": {"training_seconds": seconds, "bytes": 3_700_000}}
    if name in SHORT:
        facts["prompts"] = FEW
    return Configured(
        name,
        choices=choices,
        measures=measures,
        differences=differences,
        maxima=maxima,
        facts=facts,
        cost_per_token=cost,
        training_seconds=seconds,
        peak_bytes=int(1.1e9 + 4e8 * passes**0.5),
    )
