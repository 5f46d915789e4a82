"""The rows of a record with rivals: which are rivals, which are steerings, their short names and who judges them."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from repsurgery.studies.common.report.numbers import word
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord
from repsurgery.studies.toxicity.report.columns import CHOICES, EMT, TUNED, is_rival, is_steering, leading
from repsurgery.studies.toxicity.report.damage import usable

__all__ = [
    "TUNED",
    "Judge",
    "best_steering",
    "chosen_among",
    "fluency_judge",
    "has_rivals",
    "is_rival",
    "is_steering",
    "prompts_of",
    "short_names",
    "unseen_scorer",
]


class Judge(NamedTuple):
    """A model that read the continuations: the key of its perplexity in the measures, and its name."""

    key: str
    name: str


def has_rivals(record: ToxicityRecord) -> bool:
    """Return whether a record has a row of a rival; only then a report compares them."""
    return any(map(is_rival, record.configurations))


def best_steering(record: ToxicityRecord) -> Configured | None:
    """Return the steering that rivals are compared with: a tuned one if there is any, by the lowest toxicity.

    Steerings that damaged the model take no part; see `is_damaged`.
    """
    key = f"{leading(record)}.{EMT}"
    return min(_candidates(record), key=lambda c: c.measures[key].value, default=None)


def chosen_among(record: ToxicityRecord) -> int:
    """Return among how many steerings `best_steering` chooses by the prompts of the tests."""
    return len(_candidates(record))


def _candidates(record: ToxicityRecord) -> list[Configured]:
    key = f"{leading(record)}.{EMT}"
    measured = [c for c in usable(record) if is_steering(c) and key in c.measures]
    return [c for c in measured if c.choices["method"] == TUNED] or measured


def unseen_scorer(record: ToxicityRecord) -> str:
    """Return the first scorer that no method has used: the leading one labels and searches, the others only judge."""
    first, *further = list(record.scorers) or [""]
    return next(iter(further), first)


def fluency_judge(record: ToxicityRecord) -> Judge:
    """Return the first fluency model that is not the steered model; without one, the first."""
    first = str(record.fluency.get("name", "the fluency model"))
    judges = [Judge("perplexity", first)]
    judges += [Judge(f"perplexity.{name}", str(name)) for name in record.fluency.get("further", ())]
    return next((judge for judge in judges if judge.name != record.model.get("name")), judges[0])


def prompts_of(record: ToxicityRecord, c: Configured) -> int | None:
    """Return the number of prompts that a row covers; None if the record does not say."""
    count = c.facts.get("prompts", record.prompts.get("count"))
    return None if count is None else int(count)


def short_names(configurations: Sequence[Configured]) -> dict[str, str]:
    """Return short names that differ: method, scope and what sets a row apart, or the line itself if it is shorter.

    Guarantees
    ----------
    Different rows have different names (test_short_names_are_short_and_differ).
    """
    groups: dict[str, list[Configured]] = {}
    for c in configurations:
        groups.setdefault(_plain(c), []).append(c)
    names = {c.name: _told_apart(plain, c, group) for plain, group in groups.items() for c in group}
    names = {name: min(name, short, key=len) for name, short in names.items()}
    taken = list(names.values())
    return {name: short if taken.count(short) == 1 else name for name, short in names.items()}


def _plain(c: Configured) -> str:
    parts = (c.choices.get("method"), c.choices.get("scope"))
    return c.name if c.name == "base" else " ".join(str(part) for part in parts if part is not None) or c.name


def _told_apart(plain: str, c: Configured, group: Sequence[Configured]) -> str:
    """Return ``plain`` and the fewest choices, the most important first, that no other row of the group has."""
    others = [other for other in group if other is not c]
    words = [plain]
    for name in dict.fromkeys((*CHOICES, *c.choices)):
        alike = [other for other in others if other.choices.get(name) == c.choices.get(name)]
        if len(alike) < len(others) and c.choices.get(name) is not None:
            # of a path, its last part is enough
            words.append(f"{name}={PurePath(word(c.choices[name])).stem if name == 'file' else word(c.choices[name])}")
        others = alike
    return " ".join(words)
