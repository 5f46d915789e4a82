"""Tables of a tuned steering: methods at the same price, candidates, judges, set-up."""

from collections.abc import Mapping
from typing import Any

from repsurgery.studies.common.report.numbers import fraction, number, word
from repsurgery.studies.common.report.tables import Column, Table, pairs_table, table_of
from repsurgery.studies.tuned.front import chosen_of, compared_in_search, effect_of, estimate_of
from repsurgery.studies.tuned.words import Scale, nats, p_words, ratio

__all__ = ["candidates_table", "compared_table", "facts_tables", "judges_table"]

Row = Mapping[str, Any]
Columns = tuple[Column[Row], ...]
_ORDER = ("chosen", "confirmed", "raced", "stopped early", "dropped")


def compared_table(record: Row) -> Table | None:
    """Return the methods of the paper beside the chosen candidate, on the same prompts; None without any."""
    compared = record.get("compared") or []
    if not compared:
        return None
    searched = chosen_of(record) if compared_in_search(record) else None
    ours, prompts = _confirmed(record), f"{record['confirmation_prompts']} confirmation"
    if searched is not None:
        ours, prompts = searched, "search"
    ours = {**ours, "name": f"chosen: {_text(ours.get('name'))}", "reason": None}
    base = {"name": "base", "measured_kl": 0.0, "measure": ours.get("base")}
    caption = (
        f"Measured on the same {prompts} prompts with the same random numbers. Lower measures and prices are better."
        + _unit(record)
    )
    names: Columns = (Column("method", lambda c: _text(c.get("name"))),)
    columns: Columns = (_KL, _WIKITEXT, *_measured(record), Column("note", lambda c: _text(c.get("reason"))))
    return table_of("The methods of the paper at the same price", names, columns, [base, ours, *compared], caption)


def candidates_table(record: Row) -> Table | None:
    """Return every candidate with its status, the chosen one first; None without any."""
    candidates = record.get("candidates") or []
    names: Columns = (
        Column("candidate", _candidate_name),
        Column("status", lambda c: _text(c.get("status"))),
        Column("why it was dropped", lambda c: _text(c.get("reason"))),
    )
    columns: Columns = (
        Column("slope", lambda c: fraction(c.get("slope"), signed=True)),
        Column("gain", lambda c: number(c.get("gain"))),
        Column("predicted KL", lambda c: nats(c.get("predicted_kl"))),
        _KL,
        _WIKITEXT,
        Column("prompts", lambda c: word(c.get("prompts") or None)),
        _effect_column(record),
    )
    caption = (
        "Figures of the search, not of the confirmation. 'slope': change of the expected credit per square root of a "
        "nat, on held-out prompts. 'gain': the largest factor by which the map stretches a vector. Candidates "
        "that were stopped early were measured on fewer prompts. Where no KL is predicted, the measured one holds."
        + _unit(record)
    )
    return table_of("What was tried", names, columns, sorted(candidates, key=_rank), caption)


def judges_table(record: Row) -> Table | None:
    """Return the verdict of the judge and of every other judge on the confirmation prompts."""
    ours = {**record["judge"], "base": record["base"], "steered": record["steered"], "effect": record["effect"]}
    rows = [{**ours, "part": "took part in the search"}, *({**o, "part": "took no part"} for o in _others(record))]
    scale = Scale.of(record)
    names: Columns = (Column("judge", lambda j: _text(j.get("name"))), Column("role", lambda j: j["part"]))
    columns: Columns = (
        Column("AUC", lambda j: fraction(j.get("auc"), digits=2)),
        Column("base", lambda j: scale.value(j.get("base"))),
        Column("steered", lambda j: scale.value(j.get("steered"))),
        Column("effect [95 % interval]", lambda j: scale.cell(estimate_of(j.get("effect")))),
        Column("test", lambda j: p_words((j.get("effect") or {}).get("p"))),
    )
    caption = "AUC: how well the judge separates the two labels on texts that it never saw." + _unit(record)
    return table_of("Judges", names, columns, rows, caption)


def facts_tables(record: Row) -> list[Table]:
    """Return the set-up, and the time that each step took."""
    chosen = record.get("chosen") or {}
    facts = {
        "model": record["model"],
        "chosen candidate": chosen.get("name"),
        **{key: chosen.get(key) for key in ("site", "method", "fit", "shrinkage", "scope", "strength")},
        "predicted KL": nats(record["price"].get("predicted_kl")),
        "measured KL": nats(record["price"]["kl"]),
        "writing prompts": record.get("writing_prompts"),
        "search prompts": record.get("search_prompts"),
        "confirmation prompts": record["confirmation_prompts"],
        "continuations per prompt": record.get("samples"),
        "tokens per continuation": record.get("tokens"),
        "seed": record.get("seed"),
        "digest of the judge": record["judge"].get("digest"),
        "digest of the steering": record.get("digest"),
        "version of repsurgery": record.get("version"),
    }
    times = {step: f"{seconds:.1f} s" for step, seconds in (record.get("seconds") or {}).items()}
    if times:
        times["together"] = f"{sum(record['seconds'].values()):.1f} s"
    tables = (
        pairs_table("Set-up", {name: value for name, value in facts.items() if value not in (None, "")}),
        pairs_table("Times", times),
    )
    return [table for table in tables if table is not None]


def _confirmed(record: Row) -> Row:
    """Return the figures of the confirmation in the form of a candidate."""
    return {
        "name": (record.get("chosen") or {}).get("name"),
        "measured_kl": record["price"]["kl"],
        "wikitext_ratio": record["price"].get("wikitext_ratio"),
        "base": record["base"],
        "measure": record["steered"],
        "effect": record["effect"],
    }


_KL: Column[Row] = Column("measured KL", lambda c: nats(c.get("measured_kl")))
_WIKITEXT: Column[Row] = Column("WikiText ratio", lambda c: ratio(c.get("wikitext_ratio")))


def _measured(record: Row) -> tuple[Column[Row], ...]:
    scale = Scale.of(record)
    return (
        Column(f"judged {record['source']}", lambda c: scale.value(c.get("measure"))),
        _effect_column(record),
        Column("test", lambda c: p_words((c.get("effect") or {}).get("p"))),
    )


def _effect_column(record: Row) -> Column[Row]:
    scale = Scale.of(record)
    return Column("effect [95 % interval]", lambda c: scale.cell(effect_of(c)))


def _candidate_name(candidate: Row) -> str:
    name, shrinkage, site = _text(candidate.get("name")), candidate.get("shrinkage"), candidate.get("site")
    name = name if site in (None, "") or str(site) in name else f"{name}, at {site}"  # plug-ins name candidates freely
    return name if shrinkage in (None, "", "none") or shrinkage in name else f"{name}, {shrinkage} shrinkage"


def _unit(record: Row) -> str:
    return " Effects are in percentage points." if record["measure"] == "share" else ""


def _others(record: Row) -> list[Row]:
    return list(record.get("others") or [])


def _rank(candidate: Row) -> tuple[int, float]:
    status, effect = candidate.get("status"), effect_of(candidate)
    return _ORDER.index(status) if status in _ORDER else len(_ORDER), 0.0 if effect is None else effect.value


def _text(value: Any) -> str:
    return "–" if value in (None, "") else str(value)
