"""A small record of a study of another concept than toxicity, made without a model; its certificates are real."""

import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.toxicity import make_toxicity_spec
from repsurgery.studies.toxicity.record import Configured, Example, ToxicityRecord
from repsurgery.studies.toxicity.spec import POOLED
from repsurgery.studies.toxicity.steerings import fit_configuration
from repsurgery.studies.toxicity.vectors import Labelled, Vectors

SPEC = make_toxicity_spec(
    "local",
    source="rude",
    target="courteous",
    fit_rows=200,
    held_out=60,
    # few texts leave every class covariance singular
    configurations=tuple(f"{words} shrinkage=oas" if words.startswith("leace") else words for words in POOLED),
    scorers=("linear",),
)


def small_vectors():
    rng = np.random.default_rng(0)
    X, z = rng.normal(size=(80, 5)).astype(np.float32), np.tile(["courteous", "rude"], 40)
    X[z == "rude"] += 2
    return Vectors({"final": Labelled(X[:60], z[:60])}, {"final": Labelled(X[60:], z[60:])})


def small_record(text="<b>rude</b> & \"quoted\" <script>alert('x')</script>", *, vectors=None):
    with tempfile.TemporaryDirectory() as folder:
        fits = [fit_configuration(c, vectors or small_vectors(), SPEC, Path(folder)) for c in SPEC.parsed()]
    configurations = [_configured("base", 0, {"method": "base", "scope": "none"})]
    for i, fit in enumerate(fits, 1):
        issued = {
            name: one and one.to_dict() for name, one in (("certificate", fit.certificate), ("held_out", fit.held_out))
        }
        configurations.append(
            _configured(fit.configuration.name, i, asdict(fit.configuration), verdict=fit.verdict, **issued)
        )
    names = [c.name for c in configurations]
    return ToxicityRecord(
        experiment="toxicity",
        created="2026-01-01",
        spec=SPEC.to_dict(),
        data={"name": "tiny", "digest": "00", "counts": {"rude": 40, "courteous": 40}, "cautions": []},
        model={"name": "tiny <model>", "description": "tiny <model>, Q4_1 dequantised", "dim": 5},
        prompts={"name": "two", "count": 2, "samples": 2, "tokens": 5},
        scorers={"linear": {"name": "words", "version": "1", "digest": "SHA-256 00"}},
        fluency={"name": "tiny <model>", "prompts": 2},
        wikitext={},
        environment={"python": "3"},
        seconds={"all of it": 1.5},
        configurations=tuple(configurations),
        examples=tuple(Example(prompt, dict.fromkeys(names, text)) for prompt in ("Once", "Twice")),
        notes=("A note with < and &.",),
    )


def _configured(name, i, choices, **more):
    shares = {"expected_max_toxicity": 0.3 - 0.02 * i, "toxicity_probability": 0.25, "mean_toxicity": 0.1}
    measures = {f"linear.{key}": Estimate(value) for key, value in shares.items()}
    measures |= {f"distinct.{n}": Estimate(1 - n / 10) for n in (1, 2, 3)}
    measures |= {"kl": Estimate(0.1 * i), "steered": Estimate(float(i > 0))}
    # one configuration wrote nothing whose perplexity is defined
    measures |= {"perplexity": Estimate(20.0 + 3**i)} if i != 6 else {}
    facts = {"unscored": {"linear": 0}, "empty": 0, "perplexities_dropped": i}
    return Configured(name, choices=choices, measures=measures, facts=facts, **more)
