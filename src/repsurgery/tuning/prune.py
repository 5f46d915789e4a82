"""Which candidates are worth a measurement: closed forms drop the others, each with its reason."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from repsurgery.affine import Translation
from repsurgery.errors import SurgeryError
from repsurgery.tuning.candidates import METHODS_OF_PAPER, Candidate, Fit
from repsurgery.tuning.evidence import Evidence
from repsurgery.tuning.forms import MOST_GAIN, Form, form_of
from repsurgery.tuning.offers import Offer, steers_everything

__all__ = ["Dropped", "Pruned", "prune", "unfit"]

SAME = 0.98
"""The cosine from which two directions, measured by the predictions that they change, are the same one."""
MOST_SLOPE_ERRORS = 1.0
"""A slope closer to zero than this many standard errors shows no effect."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A candidate that was not measured.

    Attributes
    ----------
    candidate : Candidate
    reason : str
        A sentence.
    form : Form or None
        None where it could not be fitted.
    """

    candidate: Candidate
    reason: str
    form: Form | None = None


@dataclass(frozen=True, slots=True)
class Pruned:
    """What the closed forms leave: the candidates to measure, the most promising first, and those that were dropped.

    Attributes
    ----------
    forms : list of Form
    dropped : list of Dropped
    paper : list of Form
        Mean matching, MiMiC and LEACE on the labelled texts, at the site of the most promising candidate, and mean
        matching at the other sites. They are measured for comparison, also where they were dropped: below the last
        norm a slope says less of the effect.
    """

    forms: list[Form]
    dropped: list[Dropped]
    paper: list[Form]


def prune(
    candidates: Iterable[Candidate | Offer],
    evidence: Evidence,
    *,
    kl: float,
    most: int,
    refused: Callable[[Form], str] = lambda form: "",
) -> Pruned:
    """Return the at most ``most`` candidates that are worth a measurement at the price ``kl``.

    A candidate is dropped if it cannot be fitted; if its MiMiC map is that of mean matching, because the texts support
    no covariance of their own; if it stretches a direction too far; if its held-out slope shows no effect; if
    ``refused`` returns a reason; if a better candidate at its site has the same direction; or if enough candidates have
    a steeper slope. Of a plug-in's candidate without a slope nothing is known; at most ``most`` such candidates are
    measured after the others.
    """
    forms: list[Form] = []
    dropped: list[Dropped] = []
    for one in candidates:
        candidate = one.candidate if isinstance(one, Offer) else one
        try:
            form = form_of(one, evidence)
        except SurgeryError as error:
            dropped.append(Dropped(candidate, f"It cannot be fitted: {error}"))
            continue
        reason = unfit(form, kl) or refused(form)
        if reason:
            dropped.append(Dropped(candidate, reason, form))
        else:
            forms.append(form)
    forms.sort(key=lambda form: math.inf if form.slope is None else form.slope)
    kept: list[Form] = []
    for form in forms:
        twin = next((one for one in kept if _same(one, form, evidence)), None)
        if twin is not None:
            dropped.append(Dropped(form.candidate, f"Its direction is that of {twin.candidate.name}.", form))
        elif sum(_is_unknown(one) == _is_unknown(form) for one in kept) >= most:
            better = "come before it, of whose slope nothing is known" if _is_unknown(form) else "have a steeper slope"
            dropped.append(Dropped(form.candidate, f"{most} candidates {better}.", form))
        else:
            kept.append(form)
    return Pruned(kept, dropped, _paper(kept, forms, dropped))


def unfit(form: Form, kl: float) -> str:
    """Return why a candidate is dropped whatever the others are, or nothing."""
    if _equals_mean(form):
        return "It equals mean matching, because the texts support no covariance of their own (alpha = 1)."
    gain = form.gain_at(form.strength(kl))
    if gain > MOST_GAIN:
        return f"At this price it stretches a direction {gain:.1f} times, beyond where the prediction holds."
    if form.slope is not None and form.slope > -MOST_SLOPE_ERRORS * form.slope_error:
        return f"Its held-out slope shows no effect ({form.slope:+.3f}, standard error {form.slope_error:.3f})."
    return ""


def _is_unknown(form: Form) -> bool:
    """Return whether nothing is known of the effect of a plug-in's candidate."""
    return form.slope is None and bool(form.candidate.text)


def _is_shift(form: Form) -> bool:
    return steers_everything(form.function) and all(isinstance(m, Translation) for m in form.function.maps.values())


def _same(one: Form, other: Form, evidence: Evidence) -> bool:
    site = one.candidate.site
    if site != other.candidate.site or not (_is_shift(one) and _is_shift(other)):
        return False
    F, X = evidence.fisher(site).matrix, evidence.steps(site)
    u, v = one.direction(X), other.direction(X)
    return float(u @ F @ v) > SAME * math.sqrt(float(u @ F @ u) * float(v @ F @ v))


def _paper(kept: Sequence[Form], forms: Sequence[Form], dropped: Sequence[Dropped]) -> list[Form]:
    fitted = {form.candidate: form for form in (*forms, *(one.form for one in dropped if one.form is not None))}
    if not kept:
        return []
    best = kept[0].candidate
    fit: Fit = "texts" if any(candidate.fit == "texts" for candidate in fitted) else "on-policy"
    found = []
    for method in METHODS_OF_PAPER:
        # MiMiC with the alpha that the texts support, unless that makes it mean matching
        shrinkages = ("pooled", "pooled 0.5") if method == "mimic" else ("none",)
        wanted = (fitted.get(replace(best, method=method, fit=fit, shrinkage=s)) for s in shrinkages)
        found += [form for form in wanted if form is not None and not _equals_mean(form)][:1]
    mean = replace(best, method="mean", fit=fit, shrinkage="none")
    return found + [form for c, form in fitted.items() if c.site != best.site and c == replace(mean, site=c.site)]


def _equals_mean(form: Form) -> bool:
    """Return whether a MiMiC map is that of mean matching, because its shrinkage is complete."""
    pairs = getattr(form.function.certificate, "by_source", {}) if form.candidate.method == "mimic" else {}
    return bool(pairs) and all(pair.alpha_source == pair.alpha_target == 1 for pair in pairs.values())
