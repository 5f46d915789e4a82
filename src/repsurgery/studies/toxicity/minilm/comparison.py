"""`compare_scorers`: how scorers agree with archived scores and with each other, and how fast they are."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np

from repsurgery.datasets.records import rows_digest
from repsurgery.errors import DataError
from repsurgery.scorers import load_scorer
from repsurgery.scorers.archived import TOXIC, compare
from repsurgery.studies.common.report.tables import Table

__all__ = ["compare_scorers", "comparison_tables"]

_HEADINGS = {
    "auc": "AUC",
    "spearman": "Spearman",
    "mean_absolute_error": "mean error",
    "root_mean_square_error": "RMS error",
    "texts_per_cpu_second": "texts per CPU second",
}


def compare_scorers(names: Sequence[str], rows: Mapping[str, float]) -> dict[str, Any]:
    """Score the same texts by several scorers.

    Parameters
    ----------
    names : names for `scorers.load_scorer`
    rows : mapping of text to archived score in [0, 1]

    Returns
    -------
    dict, ready for JSON
        "rows" (number of texts and of toxic ones, digest), "scorers" (by name: version, digest, agreement with the
        archived scores, texts per CPU second after loading) and "pairs" (rank correlation of each two scorers). A
        figure that is not defined, such as the correlation with a constant, is None.
    """
    if not rows:
        raise DataError("compare_scorers got no texts; pass texts with archived scores.")
    texts, archived = list(rows), np.array(list(rows.values()), dtype=np.float64)
    scores, scorers = {}, {}
    for name in dict.fromkeys(names):
        scorer = load_scorer(name)
        scorer(texts[:1])  # loads the weights
        start = time.process_time()
        answer = scorer(texts)
        seconds = time.process_time() - start
        if None in answer:
            raise DataError(f"{name} has no score for {texts[answer.index(None)][:40]!r}. Leave such texts out.")
        scores[name] = np.array(answer, dtype=np.float64)
        scorers[name] = {
            "name": scorer.name,
            "version": scorer.version,
            "digest": scorer.digest,
            **{key: _known(value) for key, value in asdict(compare(scores[name], archived)).items()},
            "texts_per_cpu_second": len(texts) / seconds if seconds else None,
        }
    pairs = {f"{a}, {b}": _known(compare(scores[a], scores[b]).spearman) for a, b in combinations(scores, 2)}
    described = {
        "texts": len(texts),
        "toxic": int((archived >= TOXIC).sum()),
        "digest": rows_digest(texts, archived.tolist()),
    }
    return {"rows": described, "scorers": scorers, "pairs": pairs}


def comparison_tables(record: Mapping[str, Any]) -> tuple[Table, Table]:
    """Return the agreement of each scorer with the archived scores, and of each two scorers with each other."""
    rows, scorers, pairs = record["rows"], record["scorers"], record["pairs"]
    agreement = Table(
        f"{rows['texts']} archived texts, {rows['toxic']} of them toxic",
        ("scorer", *_HEADINGS.values()),
        tuple((name, *(_shown(scorer[key]) for key in _HEADINGS)) for name, scorer in scorers.items()),
        f"A text is toxic if its archived score is at least {TOXIC}. The errors are those of the score as an estimate "
        "of the archived one.",
    )
    correlations = tuple((pair, _shown(value)) for pair, value in pairs.items())
    return agreement, Table("Rank correlation of each two scorers", ("scorers", "Spearman"), correlations)


def _known(value: float) -> float | None:
    # JSON has no NaN
    return None if value != value else value


def _shown(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if value < 10 else f"{value:,.0f}"
