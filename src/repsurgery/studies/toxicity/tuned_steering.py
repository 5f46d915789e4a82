"""From a price to a steering: the search of `repsurgery.tuning` on the ingredients of a study."""

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import repsurgery as rs
from repsurgery.certificates import Certificate
from repsurgery.checkpoint import digest, journal_of
from repsurgery.datasets import Documents, LabelledTexts
from repsurgery.errors import DataError, ExtrapolationWarning
from repsurgery.lm.load.origin import plain_model_name
from repsurgery.lm.twins import Twin
from repsurgery.scorers import ToxicityScorer
from repsurgery.studies.common.clock import Announce
from repsurgery.studies.toxicity.generators import GeneratorContext
from repsurgery.studies.toxicity.policy import Tolerant
from repsurgery.studies.toxicity.steerings import Fitted, placed_at, stored_function
from repsurgery.studies.toxicity.tuned import TunedLine
from repsurgery.tuning.bench import Bench
from repsurgery.tuning.candidates import CANDIDATES
from repsurgery.tuning.inputs import choose_sites
from repsurgery.tuning.judges import judges_of
from repsurgery.tuning.plan import Budget
from repsurgery.tuning.race import Raced
from repsurgery.tuning.search import Search

__all__ = ["fit_tuned"]

CHOSEN = "chosen"
"""The entry of the journal of a search that says what it chose."""


def fit_tuned(
    line: TunedLine,
    context: GeneratorContext,
    pair: Sequence[Twin],
    scorer: ToxicityScorer,
    *,
    documents: Documents | None,
    progress: bool,
    announce: Announce,
) -> Fitted:
    """Search for the steering with the greatest effect at the price of ``line``.

    The search fits on the study's labelled texts and on the model's own continuations of training prompts, and compares
    candidates on other training prompts by the mean score of ``scorer``; the evaluation of the study confirms the
    choice. The chosen function is stored in the folder ``steerings``, with what is known of it beside the search, and
    later runs read it from there.

    Guarantees
    ----------
    A resumed study does not search again (test_a_resumed_study_does_not_search_again).
    """
    if line.file is not None:
        return _from_file(line, line.file)
    search = _search(line, context, pair, scorer, documents, progress=progress, announce=announce)
    identity = _identity(line, context, search)
    journal = journal_of(context.work / "tuned", "chosen", identity)

    def compute() -> rs.SteeringFunction:
        best = _choose(line, search)
        journal.note({CHOSEN: _facts(search, best)})
        origin = {"model": plain_model_name(context.spec.model), "site": best.placed.site}
        return best.form.function.with_origin(**origin, strength=best.placed.strength)

    folder, name = context.work / "steerings", digest(identity)
    if CHOSEN not in journal:
        # a function without its facts is chosen again
        (folder / f"{name[:16]}.safetensors").unlink(missing_ok=True)
    stored = stored_function(folder, name, compute, label=line.name)
    facts = journal[CHOSEN]
    steering = placed_at(stored, facts["site"], facts["strength"])
    # what a method claims holds at strength 1
    issued = stored.certificate if steering.strength == 1 else None
    return Fitted(line, steering, issued if isinstance(issued, Certificate) else None, None, None, facts)


def _from_file(line: TunedLine, file: str) -> Fitted:
    """Return a steering that was tuned elsewhere, at the site and strength that its file states."""
    function = rs.load(file)
    if not isinstance(function, rs.SteeringFunction) or function.origin.site is None:
        raise DataError(f"{line.name!r}: the file holds no steering function with a site, such as tune writes.")
    origin, outcome = function.origin, function.outcome
    site, strength = str(origin.site), 1.0 if origin.strength is None else origin.strength
    facts = {"site": site, "strength": strength, "digest": function.digest()}
    facts |= {} if outcome is None else {"outcome": outcome.to_dict()}
    return Fitted(line, placed_at(function, site, strength), None, None, None, facts)


def _search(
    line: TunedLine,
    context: GeneratorContext,
    pair: Sequence[Twin],
    scorer: ToxicityScorer,
    documents: Documents | None,
    *,
    progress: bool,
    announce: Announce,
) -> Search:
    spec, texts = context.spec, context.texts
    rows = [(text, label) for label, every in texts.fitted.items() for text in every]
    every_text, labels = zip(*rows, strict=True)
    labelled = LabelledTexts(every_text, labels, texts.labelled.name, texts.labelled.source, texts.labelled.licence)
    judges = judges_of(labelled, Tolerant(scorer), (), source=spec.source, target=spec.target, seed=spec.seed)
    plan = replace(line.plan, tokens=spec.tokens, text_tokens=min(line.plan.text_tokens, spec.max_length))
    work = context.work / "tuned"
    limited = documents if line.wikitext is not None else None
    sampling = {"top_p": spec.top_p, "temperature": float(spec.temperature)}
    return Search(
        Bench(pair, judges.judge, plan, "mean", spec.seed, work, limited, sampling),
        judges,
        line.split(texts.training.texts),
        choose_sites(context.model, plan.depths, None),
        Budget(line.kl or 0.0, line.wikitext),
        spec.source,
        spec.target,
        time.monotonic() + 60 * (math.inf if line.minutes is None else line.minutes),
        progress,
        announce,
    )


def _identity(line: TunedLine, context: GeneratorContext, search: Search) -> dict[str, Any]:
    """Return everything that decides what a search chooses, but for the time that it is given."""
    bench, judge = search.bench, search.judges.judge
    assert search.judges.texts is not None
    return {
        **{"line": line.name, **context.identity, "texts": search.judges.texts.digest},
        **{"prompts": [search.split.writing, search.split.search], "judge": [judge.name, judge.version, judge.digest]},
        **{"plan": bench.plan.to_dict(), "sites": search.sites, "seed": bench.seed},
        **{"labels": [search.source, search.target], "version": rs.__version__},
        "documents": None if bench.documents is None else bench.documents.digest,
        **({"raced": packages} if (packages := CANDIDATES.packages()) else {}),
    }


def _choose(line: TunedLine, search: Search) -> Raced:
    with warnings.catch_warnings():
        # a price, not the geodesic, decides how far a map is followed
        warnings.simplefilter("ignore", ExtrapolationWarning)
        try:
            search.gather()
            return search.choose()
        except DataError as error:
            raise DataError(f"{line.name!r}: {error}") from error


def _facts(search: Search, best: Raced) -> dict[str, Any]:
    """Return what was chosen, what it is predicted and measured to cost, and its effect on the search prompts."""
    form, placed, effect = best.form, best.placed, best.effect
    raced = {one for one in search.race.raced if one.price == 1}
    considered = raced | {f.candidate for f in search.pruned.forms} | {d.candidate for d in search.pruned.dropped}
    ratio = {} if best.wikitext_ratio is None else {"search_wikitext_ratio": round(best.wikitext_ratio, 6)}
    return {
        **{"chosen": form.candidate.name, "site": placed.site, "strength": placed.strength},
        **{"predicted_kl": round(form.unit_kl * placed.strength**2, 6), "search_kl": round(best.kl, 6), **ratio},
        **{"candidates": len(considered), "candidates_measured": len(raced), "search_prompts": effect.prompts},
        "search_effect": {name: round(value, 6) for name, value in effect.to_dict().items()},
        **({"search_notes": list(search.notes)} if search.notes else {}),
    }
