"""The record of a search: what `record.json` holds, and the outcome that the steering file holds."""

from typing import Any

import repsurgery as rs
from repsurgery.certificates import Certificate, EffectCertificate
from repsurgery.certificates.outcome import Outcome
from repsurgery.certificates.shown import on_which_rows
from repsurgery.steering.function import SteeringFunction
from repsurgery.tuning.candidates import Candidate
from repsurgery.tuning.confirm import Confirmed
from repsurgery.tuning.forms import Form
from repsurgery.tuning.race import Raced
from repsurgery.tuning.search import Search

__all__ = ["certificate_words", "outcome_of", "record_of"]

SCHEMA = 1


def outcome_of(search: Search, confirmed: Confirmed) -> Outcome:
    """Return what a steering file says of its own effect and price."""
    e, facts, plan = confirmed.effect, search.judges.facts, search.bench.plan
    return Outcome(
        judge=facts["name"],
        judge_digest=facts["digest"],
        auc=facts["auc"],
        measure=search.bench.measure,
        source=search.source,
        target=search.target,
        base=e.base,
        steered=e.steered,
        effect=e.steered - e.base,
        low=e.low,
        high=e.high,
        p=e.p,
        kl=confirmed.kl,
        wikitext_ratio=confirmed.wikitext_ratio,
        prompts=e.prompts,
        samples=plan.samples,
        tokens=plan.tokens,
    )


def record_of(
    search: Search, best: Raced, confirmed: Confirmed, function: SteeringFunction, model: str
) -> dict[str, Any]:
    """Return the record of a finished search that chose ``function``, JSON-ready.

    Guarantees
    ----------
    Prices that are predicted are those at the strength in force
    (test_predicted_prices_are_those_at_the_strength_in_force).
    """
    e, plan = confirmed.effect, search.bench.plan
    chosen = {**_setting(best.form.candidate, search), "strength": confirmed.placed.strength}
    ratio = confirmed.wikitext_ratio
    met = confirmed.kl <= search.budget.kl and (
        search.budget.wikitext is None or (ratio is not None and ratio <= search.budget.wikitext)
    )
    paper = {form.candidate for form in search.pruned.paper}
    return {
        "kind": "tune",
        "schema": SCHEMA,
        "version": rs.__version__,
        "model": model,
        "source": search.source,
        "target": search.target,
        "budget": {"kl": search.budget.kl, "wikitext": search.budget.wikitext, "met": met},
        "judge": search.judges.facts,
        "measure": search.bench.measure,
        "base": e.base,
        "steered": e.steered,
        "effect": e.to_dict(),
        "price": {
            "kl": confirmed.kl,
            "wikitext_ratio": ratio,
            "predicted_kl": search.bench.kl_along(search.evidence.apart, confirmed.placed),
        },
        "confirmation_prompts": e.prompts,
        "search_prompts": len(search.split.search),
        "writing_prompts": len(search.split.writing),
        "samples": plan.samples,
        "tokens": plan.tokens,
        "others": [
            {"name": other.name, "auc": getattr(other, "auc", None), "base": one.base, "steered": one.steered}
            | {"effect": one.to_dict()}
            for other, one in confirmed.others
        ],
        "chosen": chosen,
        "certificate": certificate_words(function, best.form.candidate),
        "optimism": {
            "search": best.effect.value,
            "confirmation": e.value,
            "difference": best.effect.value - e.value,
        },
        "candidates": _candidates(search, best),
        "compared": [
            _measured(one, search, "raced" if one.finished else "stopped early")
            for c, one in search.race.raced.items()
            if c in paper
        ],
        "pairs": [
            {name: getattr(pair, name) for name in ("prompt", "base", "steered", "base_score", "steered_score")}
            for pair in confirmed.pairs
        ],
        "notes": [*search.split.notes, *search.judges.notes, *search.notes, *_unscored(confirmed)],
        "seconds": search.seconds,
        "seed": search.bench.seed,
        "digest": best.form.function.digest(),
    }


def certificate_words(function: SteeringFunction, candidate: Candidate) -> list[str]:
    """Return what the certificate of a steering function says, in sentences."""
    certificate = function.certificate
    if isinstance(certificate, EffectCertificate) and candidate.needs == {"texts"}:
        return [
            f"Along the shift the log-likelihood of a token of source texts changes, relative to target texts, by "
            f"{certificate.held_out_slope:+.2f} nats (standard error {certificate.held_out_error:.2f}) per square root "
            f"of a nat, on {certificate.prompts} pairs of texts; no pair took part in the natural shift it judges."
        ]
    if isinstance(certificate, EffectCertificate) and certificate.added_shift and len(candidate.needs) == 1:
        return [
            f"Along the shift the score changes by {certificate.held_out_slope:+.2f} (standard error "
            f"{certificate.held_out_error:.2f}) per square root of a nat, by gradients of {certificate.prompts} "
            "prompts. Each prompt took no part in the natural shift that it judges; the difference of the means was "
            "fitted on all of them."
        ]
    if isinstance(certificate, EffectCertificate):
        return [
            f"Along the shift the score changes by {certificate.held_out_slope:+.2f} (standard error "
            f"{certificate.held_out_error:.2f}) per square root of a nat, by gradients of {certificate.prompts} "
            "prompts, each of which took no part in the shift that it judges."
        ]
    if isinstance(certificate, Certificate):
        return [
            f"{on_which_rows(certificate)}, the gap between the means of {pair.source} and {pair.target} falls from "
            f"{pair.mean_gap_before:.3g} to {pair.mean_gap:.2g} at strength 1."
            for pair in list(certificate.by_source.values())[-1:]
        ]
    if candidate.scope == "all":
        return ["The method certifies nothing; the effect above is what was measured of it."]
    return ["Behind a gate the map has no certificate of its own; the effect above is what was measured of it."]


def _unscored(confirmed: Confirmed) -> list[str]:
    base, steered = confirmed.unscored
    if not base + steered:
        return []
    return [f"Continuations without anything to score count as 0: {base} of the base, {steered} steered."]


def _setting(candidate: Candidate, search: Search) -> dict[str, Any]:
    c = candidate
    return {
        **{"name": c.name, "site": c.site, "method": c.method, "fit": c.fit, "shrinkage": c.shrinkage},
        **{"scope": c.scope, "kl": c.price * search.budget.kl},
    }


def _form(form: Form, search: Search) -> dict[str, Any]:
    return {**_setting(form.candidate, search), "slope": form.slope, "gain": form.gain}


def _measured(raced: Raced, search: Search, status: str) -> dict[str, Any]:
    e = raced.effect
    return {
        **_form(raced.form, search),
        **{"predicted_kl": raced.predicted_kl, "measured_kl": raced.kl},
        **{"wikitext_ratio": raced.wikitext_ratio, "strength": raced.placed.strength, "status": status, "reason": ""},
        **{"prompts": e.prompts, "base": e.base, "measure": e.steered, "effect": e.to_dict()},
    }


def _candidates(search: Search, best: Raced) -> list[dict[str, Any]]:
    rows = []
    for one in search.race.raced.values():
        status = "chosen" if one is best else "raced" if one.finished else "stopped early"
        row = _measured(one, search, status)
        if not one.finished:
            row["reason"] = "It was worse than the best candidate on half of the search prompts (p < .1), and stopped."
        elif one.form.candidate.price > 1:
            row["reason"] = "It costs more than the budget; it shows what a higher price would buy."
        rows.append(row)
    measured = {one.form.candidate for one in search.race.raced.values()}
    unmeasured: dict[str, Any] = {
        "predicted_kl": None,
        "measured_kl": None,
        "wikitext_ratio": None,
        "prompts": 0,
        "base": None,
    }
    unmeasured |= {"measure": None, "effect": None, "status": "dropped"}
    for drop in search.pruned.dropped:
        if drop.candidate not in measured:
            facts = _setting(drop.candidate, search) | {"slope": None, "gain": None}
            facts = facts if drop.form is None else _form(drop.form, search)
            rows.append({**facts, **unmeasured, "reason": drop.reason})
    waiting = [form for form in search.pruned.forms if form.candidate not in measured]
    rows += [{**_form(f, search), **unmeasured, "reason": "The time was up before its turn."} for f in waiting]
    return rows
