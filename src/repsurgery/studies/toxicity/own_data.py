"""Options that follow the data: with texts or prompts of one's own, what was not stated is chosen to suit them.

An option that was stated is kept, also where it was stated as the preset has it; all others are free. Published data
are not "own": where they are too small for a preset, the copy is incomplete, and an error says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from repsurgery.certificates.verify import FEWEST_ROWS
from repsurgery.datasets import LabelledTexts, Prompts
from repsurgery.datasets.columns import find_label_column, find_text_column, read_columns, require_column
from repsurgery.datasets.own_prompts import find_prompt_column
from repsurgery.datasets.rows import ENDINGS
from repsurgery.errors import DataError, LabelError
from repsurgery.studies.toxicity.configuration import needed_sites
from repsurgery.studies.toxicity.spec import ToxicitySpec, make_toxicity_spec

__all__ = ["EMBEDDED", "FOLLOWING", "PUBLISHED", "Choices"]

PUBLISHED = ("jigsaw", "paradetox", "real-toxicity-prompts")
EMBEDDED = "courtesy"
FOLLOWING = (
    *("text", "label", "source", "target", "fit_rows", "held_out", "prompt_column", "prompt_count"),
    *("prompt_toxicity", "policy_prompts", "wikitext_documents"),
)
"""Every option that may follow the data."""

_YES_NO = (("1", "0"), ("1.0", "0.0"), ("true", "false"), ("yes", "no"), ("y", "n"), ("t", "f"))
_HELD_OUT = 0.2
"""Share of the rarer label that is held out."""


@dataclass(slots=True)
class Choices:
    """A specification while its free options are chosen, and the reasons of the choices.

    Guarantees
    ----------
    A stated option is never changed (test_what_was_stated_is_kept). Published data change nothing
    (test_published_data_change_no_option).
    """

    spec: ToxicitySpec
    reasons: list[str] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        """What was chosen and why, on one line; empty if nothing was chosen."""
        if not self.reasons:
            return ""
        return f"Chosen to suit the data: {'; '.join(self.reasons)}. State any of them with --set to change it."

    def choose_columns(self) -> None:
        """Find the columns of the texts and labels, where the table lacks those that the options name."""
        file = Path(self.spec.data)
        if self.spec.data in (*PUBLISHED, EMBEDDED) or not file.is_file() or file.suffix.lower() not in ENDINGS:
            return
        columns, spec = read_columns(file), self.spec
        if spec.text not in columns and self._is_free("text"):
            self._choose({"text": find_text_column(file, columns)}, "the column with the longest cells")
        text = require_column(file, columns, self.spec.text, option="text")
        if spec.label not in columns and self._is_free("label"):
            label = find_label_column(file, columns, text=text)
            self._choose({"label": label}, "the only other column with few different values")
        require_column(file, columns, self.spec.label, option="label")

    def choose_labels(self, data: LabelledTexts) -> None:
        """Choose which of two labels is steered, and to which, where the usual names do not occur."""
        spec, labels = self.spec, list(data.counts)
        if spec.data in PUBLISHED or {spec.source, spec.target} <= set(labels):
            return
        if len(labels) == 2 and spec.source in labels and self._is_free("target"):
            self._choose({"target": _other(labels, spec.source)}, "the other label")
        elif len(labels) == 2 and spec.target in labels and self._is_free("source"):
            self._choose({"source": _other(labels, spec.target)}, "the other label")
        elif self._is_free("source") and self._is_free("target"):
            by_case = {label.casefold(): label for label in labels}
            pair = next((pair for pair in _YES_NO if set(pair) == set(by_case) and len(labels) == 2), None)
            if pair is not None:
                source, target = (by_case[name] for name in pair)
                self._choose({"source": source, "target": target}, f"what '{spec.label}' affirms is steered away")
        self._require_labels(data)

    def _require_labels(self, data: LabelledTexts) -> None:
        absent = [name for name in ("source", "target") if getattr(self.spec, name) not in data.counts]
        if absent:
            counts = ", ".join(f"{label} ({count})" for label, count in data.counts.items())
            example = list(data.counts)[:2]
            given = " and ".join(f"{name} {getattr(self.spec, name)!r}" for name in absent)
            raise LabelError(
                f"{data.name} has no text labelled as {given}; its labels are {counts}. Say which label is steered and "
                f"to which, as in --set source={example[-1]} --set target={example[0]}."
            )

    def choose_rows(self, data: LabelledTexts) -> None:
        """Choose how many labelled texts are fitted and held out."""
        if self.spec.data in PUBLISHED:
            return
        spec = self.spec
        label, rows = min(((name, data.counts[name]) for name in (spec.source, spec.target)), key=lambda pair: pair[1])
        if rows < 2:
            raise DataError(f"{data.name} has {rows} text labelled {label!r}; a fit needs at least 2. Add some.")
        held_out, fit_rows = spec.held_out, spec.fit_rows
        if self._is_free("held_out"):
            stated = 0 if self._is_free("fit_rows") else fit_rows
            held_out = min(held_out, round(_HELD_OUT * rows), max(0, rows - stated))
            held_out = held_out if held_out >= FEWEST_ROWS else 0
        if self._is_free("fit_rows") and fit_rows > rows - held_out >= 2:
            fit_rows = rows - held_out
        # too many stated rows are refused where the texts are split, which says how many there are
        chosen = {"fit_rows": fit_rows, "held_out": held_out}
        changed = {name: value for name, value in chosen.items() if value != getattr(spec, name)}
        if changed:
            self._choose(changed, f"{label!r}, the rarer label, has {rows} texts")

    def choose_prompts(self, prompts: Prompts) -> None:
        """Choose which and how many prompts are evaluated, and how many train on-policy fits and searches."""
        spec, file = self.spec, Path(self.spec.prompts)
        if spec.prompts in PUBLISHED:
            return
        if file.suffix.lower() in ENDINGS and not spec.prompt_column:
            column = find_prompt_column(file)
            if column != "prompt":
                self._choose({"prompt_column": column}, "the column of the prompts")
        unscored = all(score is None for score in prompts.toxicity)
        if unscored and spec.prompt_toxicity and self._is_free("prompt_toxicity"):
            self._choose({"prompt_toxicity": 0.0}, "the prompts have no scores, so all may be used")
        usable = len(prompts if unscored else prompts.below(spec.prompt_toxicity or None))
        needed = bool(needed_sites(spec.parsed())["on-policy"] or spec.searches())
        chosen = self._prompt_counts(usable, len(prompts), needed=needed)
        if chosen:
            which = "prompt" if usable == 1 else "prompts"
            also = "; half of them train, and none of these is evaluated" if "policy_prompts" in chosen else ""
            self._choose(chosen, f"there are {usable} {which}{also}")

    def _prompt_counts(self, usable: int, every: int, *, needed: bool) -> dict[str, Any]:
        """Return how many prompts to evaluate and to train on; nothing if there are enough for what is asked."""
        spec, training = self.spec, self.spec.policy_prompts if needed else 0
        chosen: dict[str, Any] = {}
        if usable < spec.prompt_count + training and self._is_free("prompt_count"):
            free = self._is_free("policy_prompts")
            room = usable if not needed else (usable + 1) // 2 if free else usable - training
            count = min(spec.prompt_count, room)
            if 0 < count < spec.prompt_count:
                chosen["prompt_count"] = count
        rest = every - max(chosen.get("prompt_count", spec.prompt_count), min(spec.reserved_prompts, usable))
        if needed and 0 < rest < training and self._is_free("policy_prompts"):
            chosen["policy_prompts"] = rest
        return chosen

    def leave_out_wikitext(self, error: Exception) -> None:
        """Measure nothing on WikiText, which cannot be had; raise ``error`` where its measurement was stated."""
        own = self.spec.data not in PUBLISHED or self.spec.prompts not in PUBLISHED
        if not own or not self._is_free("wikitext_documents") or any(line.wikitext for line in self.spec.tuned()):
            raise error
        self._choose({"wikitext_documents": 0}, "WikiText-2 is not in --data-dir and cannot be downloaded")

    def _is_free(self, name: str) -> bool:
        return self.spec.is_free(name, make_toxicity_spec(self.spec.preset))

    def _choose(self, options: Mapping[str, Any], reason: str) -> None:
        self.spec = replace(self.spec, **options)
        words = ", ".join(
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in options.items()
        )
        self.reasons.append(f"{words} ({reason})")


def _other(labels: list[str], one: str) -> str:
    return next(label for label in labels if label != one)
