"""What certificates say of themselves: the verdict in plain words, then the figures that support it."""

import math
from typing import TYPE_CHECKING, Any

from repsurgery.cards import Card, change, count, listed, name_of, number, values

if TYPE_CHECKING:
    from repsurgery.certificates.certificate import Certificate, PairRecord
    from repsurgery.certificates.continuous import ContinuousCertificate
    from repsurgery.certificates.effect import EffectCertificate
    from repsurgery.certificates.findings import Finding, Verification
    from repsurgery.certificates.outcome import Outcome

__all__ = [
    "certificate_card",
    "continuous_card",
    "effect_card",
    "finding_card",
    "left_out",
    "measured_on",
    "on_which_rows",
    "outcome_card",
    "pair_card",
    "verdict",
    "verification_card",
]

CLOSED = 1e-3
"""A gap counts as closed up to this share of the gap before steering: rounding of rows in float32 stays below it."""
WIDE_GAIN = 100.0
OVERFITTED = "not told: fewer rows than features let a probe fit any labels; verify(X, z) tests the claims"
_NOUNS = {"means": "mean", "covariances": "covariance", "variances": "variances", "neighbours": "neighbour distances"}
_PLURALS = {"neighbours": "distances to neighbours"}
_GAPS = {"means": "mean_gap", "covariances": "covariance_gap", "variances": "variance_gap", "neighbours": "ebbn"}


def verdict(certificate: "Certificate") -> str:
    """Return in plain words what a map does with the classes that it was made for."""
    if not certificate.claims:
        return "The method claims nothing of this map; the figures are measurements."
    on = on_which_rows(certificate)
    claims = list(certificate.claims)
    # equal means and traces imply equal expected distances to neighbours, so that naming them adds nothing
    named = [c for c in claims if c != "neighbours"] or claims
    open_gaps = [words for c in claims if (words := _open(certificate, c))]
    closed = [_NOUNS[c] for c in named if not _open(certificate, c)]
    parts = [f"{on}, {_subject(certificate, closed)}."] if closed else []
    lead = "Gaps are left between" if closed else f"{on}, gaps are left between"
    parts += [f"{lead} {_and(open_gaps)}."] if open_gaps else []
    if open_gaps and certificate.data == "given rows":
        parts.append("verify(X, z) tests whether sampling error explains this.")
    if certificate.gated_mean_gap is not None and certificate.target is not None:
        left, before = certificate.gated_mean_gap, max(r.mean_gap_before for r in certificate.by_source.values())
        parts.append(
            f"Where the gate decides instead of labels, the gap between the means is {number(left)} (before: "
            f"{number(before)})."
        )
    if certificate.held_out is not None:
        parts.append(f"{left_out(certificate)}.")
    if not certificate.feasible:
        parts.append(
            "No map of this kind closes the gap between the covariances; "
            f"{number(certificate.residual_bound)} is the least."
        )
    if certificate.gain > WIDE_GAIN:
        parts.append(f"Caution: some direction is stretched {certificate.gain:,.3g}-fold, and noise with it.")
    return " ".join(parts)


def on_which_rows(certificate: "Certificate | ContinuousCertificate") -> str:
    """Return the words by which a sentence about a certificate begins."""
    if certificate.data == "given rows":
        return "On the given rows"
    return "On the rows of the fit" if certificate.measured_on == "rows" else "On the moments that it was fitted from"


def measured_on(certificate: "Certificate | ContinuousCertificate") -> str:
    """Return in words which rows the figures of a certificate are about."""
    given = certificate.data == "given rows"
    if certificate.measured_on == "moments":
        return f"the moments of the {'given' if given else 'fitted'} rows; no rows were at hand"
    whose = "the given rows" if given else "the rows of the fit"
    steered = [s for record in getattr(certificate, "by_source", {}).values() for s in record.steered_one_by_one]
    if all(steered_all for _, steered_all in steered):
        return f"{whose}, each of them"
    fewest = min(number for number, steered_all in steered if not steered_all)
    return (
        f"the moments of {whose}, which all rows confirm along four directions and {fewest:,} rows of each larger "
        "class one by one"
    )


def left_out(certificate: "Certificate") -> str:
    """Return in words what is left of the gaps on rows left out of the fit."""
    h, promised = certificate.held_out, promised_gaps(certificate)
    assert h is not None
    means = ("the means", h.mean_gap_before, h.mean_gap)
    said = [
        f"the gap between {words} goes from {number(before)} to {number(after)}"
        f"{', wider than without steering' if after > before and (words, before, after) in promised else ''}"
        for words, before, after in (promised if means in promised else [means, *promised])
    ]
    return f"On rows left out of the fit ({h.folds} folds), {'; '.join(said)}"


def promised_gaps(certificate: "Certificate") -> list[tuple[str, float, float]]:
    """Return words for each gap that a method promises to close, without steering and with it, on rows left out."""
    h = certificate.held_out
    assert h is not None
    figures = {
        "means": ("the means", h.mean_gap_before, h.mean_gap),
        "covariances": ("the covariances", h.covariance_gap_before, h.covariance_gap),
        # equal means and covariances imply equal distances
        "neighbours": ("the expected distances to neighbours", h.ebbn_before, h.ebbn),
    }
    implied = {"neighbours"} if "covariances" in certificate.claims else set()
    return [figure for claim, figure in figures.items() if claim in set(certificate.claims) - implied]


def _and(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _subject(certificate: "Certificate", nouns: list[str]) -> str:
    what = _and(nouns)
    sources = list(certificate.by_source)
    if certificate.target is None:
        classes = "both classes" if len(sources) == 2 else f"all {len(sources)} classes"
        same = f"{classes} have the same {what} after steering"
        return f"{same}, so that no linear probe in a convex loss beats a constant guess" if "mean" in nouns else same
    whose = f"labelled {name_of(sources[0])}" if len(sources) == 1 else f"of each of {len(sources)} classes"
    return f"the rows {whose} have the {what} of {name_of(certificate.target)} once they are steered"


def _open(certificate: "Certificate", claim: str) -> str:
    """Return in words what is left of the gap that ``claim`` promises to close; nothing where it is closed."""
    name = _GAPS[claim]
    pair = max(certificate.by_source.values(), key=lambda record: getattr(record, name))
    after, before = getattr(pair, name), getattr(pair, f"{name}_before", None)
    if claim == "means" and pair.probe_r2 == 0:
        return ""  # the means are equal up to rounding
    # relative gaps have the scale 1; the bias by neighbours is a squared distance, as the cost is
    scale = {"means": before, "neighbours": max(pair.ebbn_before, pair.cost)}.get(claim, 1.0)
    if after <= CLOSED * (scale or 0.0):
        return ""
    what = f"the {'expected ' if claim == 'neighbours' else ''}{_PLURALS.get(claim, claim)}"
    if before is None:
        return f"{what} ({number(after)} of the target's)"
    return f"{what} ({change(before, after)}{', not smaller than before' if after >= before else ''})"


def certificate_card(certificate: "Certificate") -> Card:
    """Return the card of a certificate: the verdict, then the figures; of several sources, the worst of each."""
    c, records = certificate, list(certificate.by_source.values())
    several = len(records) > 1
    facts = [("claims", ", ".join(f"equal {_PLURALS.get(claim, claim)}" for claim in c.claims) or "none")]
    if several:
        facts.append(("classes" if c.target is None else "sources", f"{values(c.by_source)}; figures are the worst"))
    if c.target is not None:
        facts.append(("target", name_of(c.target)))
    facts += _gaps(c, records)
    whose = {"source": "source rows", "all": "all rows", "neutral": "neutral rows"}[c.population]
    facts.append(("cost", f"{number(c.cost)}{_least(c)}, mean squared displacement of {whose}"))
    facts.append(("gain", f"{number(c.gain)}, the largest factor by which a direction is stretched"))
    facts += _gated(c)
    facts.append(("measured on", measured_on(c)))
    rows = sum(r.rows_source for r in records)
    facts.append(
        ("rows", f"{rows:,} steered" + ("" if c.target is None else f", {records[0].rows_target:,} of the target"))
    )
    ridge = "" if c.ridge is None else f", ridge {number(c.ridge)}"
    facts.append(("shrinkage", f"{c.shrinkage}{ridge}"))
    facts.append(("digest", f"{c.digest[:16]}…" if c.digest else "none yet"))
    return Card(f"Certificate of {c.method}", verdict(c), tuple(facts))


def _least(c: "Certificate | ContinuousCertificate") -> str:
    """Return whether a cost is the smallest possible; on other rows than those of the fit there is nothing to say."""
    if c.data != "fitting moments" or c.shrinkage != "none":
        return ""
    return " (the least)" if c.cost <= c.optimal_cost * (1 + 1e-6) else f" (the least is {number(c.optimal_cost)})"


def _gaps(c: Any, records: list[Any]) -> list[tuple[str, str]]:
    def worst(name: str) -> str:
        pair = max(records, key=lambda r: getattr(r, name))
        return change(getattr(pair, f"{name}_before"), getattr(pair, name))

    variances = [("variance gap", f"{number(c.variance_gap)}, relative")] if "variances" in c.claims else []
    return [
        ("mean gap", worst("mean_gap")),
        ("covariance gap", f"{worst('covariance_gap')}, relative"),
        *variances,
        ("neighbour bias (EBBN)", worst("ebbn")),
        ("linear probe R²", OVERFITTED if _overfitted(records) else worst("probe_r2")),
    ]


def _overfitted(records: list[Any]) -> bool:
    """Return whether there are so few rows for the features that a probe of these rows explains any labels."""
    return any(record.probe_r2 >= 1 - 1e-9 for record in records)


def _gated(c: Any) -> list[tuple[str, str]]:
    if c.gated_mean_gap is None:
        return []
    facts = []
    if c.youden is not None:  # a map for all classes has no gate
        decided = f"Youden J {number(c.youden)}; mean gap {number(c.gated_mean_gap)}"
        facts.append(("where the gate decides", decided))
    if c.probe_loss is not None and c.probe_r2 < 1 - 1e-9:
        facts.append(("logistic probe", f"{number(c.probe_loss)} nats; a constant guess: {number(c.prior_entropy)}"))
    return facts


def pair_card(record: "PairRecord") -> Card:
    """Return the card of the measures of one class."""
    r = record
    facts = [
        *_gaps_of(r),
        ("cost", f"{number(r.cost)} (at least {number(r.optimal_cost)})"),
        ("gain", number(r.gain)),
        (
            "rows",
            f"{r.rows_source:,} and {r.rows_target:,}, worth {r.effective_rows[0]:,.1f} and {r.effective_rows[1]:,.1f}",
        ),
        ("feasible", "yes" if r.feasible else f"no; the least gap is {number(r.residual_bound)}"),
    ]
    return Card(f"Measures of {name_of(r.source)} against {name_of(r.target)}", facts=(*facts, *_gated(r)))


def _gaps_of(record: "PairRecord") -> list[tuple[str, str]]:
    names = {"mean_gap": "mean gap", "covariance_gap": "covariance gap, relative", "ebbn": "neighbour bias (EBBN)"}
    names["probe_r2"] = "linear probe R²"
    return [(words, change(getattr(record, f"{n}_before"), getattr(record, n))) for n, words in names.items()]


def effect_card(certificate: "EffectCertificate") -> Card:
    """Return the card of the certificate of a natural shift."""
    c = certificate
    sure = abs(c.held_out_slope) > 2 * c.held_out_error
    how = "lower" if c.held_out_slope < 0 else "raise"
    said = (
        f"At {number(c.kl)} nats per token, the shift is predicted to {how} the expected credit of a text by "
        f"{number(abs(c.predicted_effect))}, by prompts that did not choose it."
    )
    doubt = (
        " That is less than two standard errors from no effect." if not sure and math.isfinite(c.held_out_error) else ""
    )
    facts = (
        ("held-out slope", f"{c.held_out_slope:+.3g} ± {c.held_out_error:.2g} per square root of a nat"),
        ("slope when fitting", f"{c.slope:+.3g}, which is optimistic"),
        ("price", f"{number(c.kl)} nats per token"),
        ("prompts", f"{c.prompts:,} in {count(c.folds, 'fold')}; Fisher matrix of {count(c.positions, 'position')}"),
        ("damping", number(c.damping) + ("; a given shift was added" if c.added_shift else "")),
        ("digest", f"{c.digest[:16]}…" if c.digest else "none yet"),
    )
    return Card(f"Certificate of {c.method}", said + doubt, facts)


def outcome_card(outcome: "Outcome") -> Card:
    """Return the card of a measured effect and price."""
    o = outcome
    facts = (
        (f"measure ({o.measure})", change(o.base, o.steered)),
        ("effect", f"{o.effect:+.3g}, 95 % interval {o.low:+.3g} to {o.high:+.3g}"),
        ("price", f"{number(o.kl)} nats per token"),
        ("written", f"{count(o.prompts, 'prompt')} × {o.samples:,} × at most {count(o.tokens, 'token')}"),
    )
    return Card(f"Outcome: {name_of(o.source)} to {name_of(o.target)}", outcome.words(), facts)


def verification_card(verification: "Verification") -> Card:
    """Return the card of a verification: the verdict, then one line for each claim about each class."""
    v = verification
    if not v.findings:
        said = "Maps and gate are the certified ones, byte for byte. No rows were given, so the claims were not tested."
        return Card("Verification", said)
    said = {
        "supported": "The rows support every claim: a violation a fifth as large as the gap would have shown.",
        "contradicted": "The rows contradict a claim.",
        "cannot tell": "The rows contradict no claim, but are too few to support all of them.",
    }[v.verdict]
    order = {"contradicted": 0, "cannot tell": 1, "supported": 2}
    findings = sorted(v.findings, key=lambda f: order[f.verdict])
    facts = [(_about(f), _finding(f)) for f in findings[:8]]
    if len(findings) > 8:
        facts.append(("…", f"and {count(len(findings) - 8, 'more finding')}"))
    return Card(f"Verification: {v.verdict}", said, tuple(facts))


def _about(f: "Finding") -> str:
    return f"column {f.source}" if f.claim == "no covariance" else f"{name_of(f.source, 14)}, {f.claim}"


def _finding(f: "Finding") -> str:
    return f"{f.verdict}; gap {number(f.gap)}, p = {f.p_value:.2g}, power {f.power:.2f}"


def finding_card(finding: "Finding") -> Card:
    """Return the card of one claim about one class."""
    f = finding
    facts = (
        ("gap", f"{number(f.gap)} on {f.rows[0]:,} and {f.rows[1]:,} rows; certified {number(f.claimed)}"),
        ("strongest test", f"{f.where}: {number(f.found)}, allowed {number(f.allowed)}"),
        ("p-value, power", f"{f.p_value:.2g}, {f.power:.2f}"),
    )
    return Card(f"Finding on {_about(f)}: {f.verdict}", facts=facts)


def continuous_card(certificate: "ContinuousCertificate") -> Card:
    """Return the card of the certificate of a continuous concept."""
    c = certificate
    on = on_which_rows(c)
    worst = max(range(c.columns), key=lambda j: c.r2_after[j])
    what = "the concept" if c.columns == 1 else f"any of the {c.columns} columns of the concept"
    if c.r2_after[worst] <= CLOSED**2:
        said = f"{on}, no linear probe of the erased rows predicts {what} better than its mean does."
    else:
        said = (
            f"{on}, the best linear probe of the erased rows explains {c.r2_after[worst]:.2g} of the variance of "
            f"{'the concept' if c.columns == 1 else f'column {worst}'}, before {c.r2_before[worst]:.2g}."
        )
    if c.data == "given rows":
        said += " verify(X, z) tests whether sampling error explains what is left."
    shown = range(min(c.columns, 5))
    facts = [("linear probe R²", listed([change(c.r2_before[j], c.r2_after[j]) for j in shown]))]
    moved = [change(c.covariance_before[j], c.covariance_after[j]) for j in shown]
    facts.append(("covariance with it", listed(moved)))
    if c.columns > len(shown):
        facts.append(("…", f"and {count(c.columns - len(shown), 'more column')}"))
    facts.append(("cost", f"{number(c.cost)}{_least(c)}, mean squared displacement of all rows"))
    facts.append(("gain", f"{number(c.gain)}, the largest factor by which a direction is stretched"))
    if c.held_out is not None:
        h = c.held_out
        folds = [change(h.r2_before[j], h.r2_after[j]) for j in shown]
        facts.append(("R² on rows left out", f"{listed(folds)}, in {h.folds} folds"))
    facts.append(("measured on", measured_on(c)))
    facts.append(("rows", f"{c.rows:,}, worth {c.effective_rows:,.1f} independent ones"))
    facts.append(("shrinkage", c.shrinkage))
    facts.append(("digest", f"{c.digest[:16]}…" if c.digest else "none yet"))
    return Card(f"Certificate of {c.method} for a continuous concept", said, tuple(facts))
