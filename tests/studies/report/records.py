"""A small record, made without a model."""

import numpy as np

from repsurgery.studies.demo.record import DemoRecord, Outcome
from repsurgery.studies.demo.steerings import Split, clouds, fit_all


def small_record(texts=("polite", "<b>rude</b> & \"quoted\" <script>alert('x')</script>")):
    rng = np.random.default_rng(0)
    X, z = rng.normal(size=(80, 5)), np.tile(["courteous", "rude"], 40)
    X[z == "rude"] += 2
    split = Split(X[:60], z[:60], X[60:], z[60:])
    fitted = fit_all(split, "rude", "courteous")
    names = [("base", "none"), *((f.method, f.scope) for f in fitted)]
    return DemoRecord(
        model="tiny <model>, Q4_1 dequantised",
        corpus="tiny, SHA-256 00",
        scorer="words 1, SHA-256 00",
        source="rude",
        target="courteous",
        settings={"samples": "2", "tokens": "5", "site": "final"},
        environment={"python": "3"},
        seconds={"all of it": 1.5},
        prompts=("Once", "Twice"),
        outcomes=tuple(_outcome(i, *name, texts) for i, name in enumerate(names)),
        certificates=tuple(f.certified for f in fitted if f.certified is not None),
        clouds=tuple(clouds(split, fitted, "rude", "courteous")),
        notes=("A note with < and &.",),
    )


def _outcome(i, method, scope, texts):
    return Outcome(
        method=method,
        scope=scope,
        continuations=(texts, texts),
        expected_max_toxicity=0.3 - 0.02 * i,
        toxicity_probability=0.25,
        mean_toxicity=0.1,
        perplexity=float("nan") if i == 6 else 20.0 + 3**i,
        dropped=i,
        distinct=(0.9, 0.8, 0.7),
        kl=0.1 * i,
        read_as_source=0.2,
        steered=1.0,
    )
