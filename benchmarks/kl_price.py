"""The predicted price of a steering against the measured KL(base ‖ steered), on SmolLM2-135M.

Fisher matrices, moments and maps come from one half of the courtesy corpus, and the divergence is measured on other
texts of it. Run ``python -m benchmarks.kl_price``; the record is kept in ``benchmarks/results/kl_price.json``.
"""

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import repsurgery as rs
from benchmarks.machine import facts
from repsurgery import datasets, lm
from repsurgery.errors import ExtrapolationWarning

__all__ = ["SITES", "price_table"]

SITES = ("final", "layers.24", "layers.15")
BUDGETS = (0.01, 0.03, 0.1, 0.3)
METHODS = {"mean": lambda: rs.MeanMatching(**_PAIR), "mimic-oas": lambda: rs.MiMiC(shrinkage="oas", **_PAIR)}
_PAIR = {"source": "rude", "target": "courteous", "gate": "always"}


def price_table(texts: int, samples: int) -> list[dict[str, Any]]:
    """Return one row per site, method and budget: strength, predicted and measured KL, and their ratio."""
    model, tokenizer = lm.load("smollm2-135m")
    corpus = datasets.load_courtesy()
    # fitted texts of both classes come first, then as many texts of which nothing was read
    order = [
        i
        for pair in zip(*(np.flatnonzero(np.array(corpus.labels) == c) for c in ("rude", "courteous")), strict=False)
        for i in pair
    ]
    fitted, measured = order[:texts], order[texts : 2 * texts]
    words, labels = [corpus.texts[i] for i in fitted], [corpus.labels[i] for i in fitted]
    options: dict[str, Any] = {"sites": list(SITES), "progress": False}
    fishers = lm.fisher(model, tokenizer, words, samples=samples, **options)
    moments = lm.class_moments(model, tokenizer, words, labels, pooling="all", **options)
    fitted_maps = {
        (site, name): make().fit_moments(moments[site]).map_ for site in SITES for name, make in METHODS.items()
    }

    def measure(steering: dict[str, Any], strength: float) -> float:
        found = lm.kl_divergence(
            model,
            tokenizer,
            [corpus.texts[i] for i in measured],
            steering,
            strength=strength,
            direction="base-steered",
            batch_size=16,
            progress=False,
        )
        return float(np.mean([value for one in found for value in one.values]))

    rows = []
    for (site, name), m in fitted_maps.items():
        for budget in BUDGETS:
            strength = fishers[site].strength(m, budget, moments[site])
            rows.append(_row(site, name, budget, strength, measure({site: m}, strength)))
            print(rows[-1], flush=True)
    joint = {site: fitted_maps[site, "mean"] for site in ("final", "layers.15")}
    alone = sum(fishers[site].kl(m, moments[site]) for site, m in joint.items())
    for budget in BUDGETS:
        strength = float(np.sqrt(budget / alone))
        rows.append(_row(" + ".join(joint), "mean", budget, strength, measure(joint, strength)))
        print(rows[-1], flush=True)
    return rows


def _row(site: str, method: str, budget: float, strength: float, measured: float) -> dict[str, Any]:
    facts = {"site": site, "method": method, "predicted": budget, "strength": strength, "measured": measured}
    return {**facts, "ratio": measured / budget}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=60, help="texts fitted on, and as many measured on")
    parser.add_argument("--samples", type=int, default=16, help="tokens drawn per position below final")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "kl_price.json")
    arguments = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)  # a budget may ask for more than the fitted map
        rows = price_table(arguments.texts, arguments.samples)
    record = {
        "machine": facts(),
        "model": "smollm2-135m",
        "texts": arguments.texts,
        "samples": arguments.samples,
        "rows": rows,
    }
    arguments.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
