"""A fairness study on the user's own table: its column of texts, its two concepts and its sizes follow the data."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from repsurgery.datasets import ConceptTexts, read_study
from repsurgery.datasets.columns import find_text_column, read_columns, require_column
from repsurgery.datasets.rows import ENDINGS
from repsurgery.errors import DataError, LabelError
from repsurgery.studies.fairness.spec import StudySpec, make_spec

__all__ = ["FOLLOWING", "load_own"]

FOLLOWING = ("text", "source", "target", "positive", "per_cell", "methods")
"""Options that follow the data unless they were stated."""
POOLED = "mimic-pooled"
MOST_VALUES = 20
"""A concept with more values is not a choice among groups."""
FEWEST_PER_CELL = 20
"""The fewest rows of each label with which a dialect study has a meaning: its test split is a tenth."""


def load_own(spec: StudySpec) -> tuple[StudySpec, ConceptTexts]:
    """Return the rows of a table or folder that a study can use, and the specification that suits them.

    Rows with a missing value, or with another concept than the two that are compared, are left out. Cautions of the
    texts say what was left out and what was chosen, and why.

    Raises
    ------
    DataError, LabelError
        A column does not exist, a stated concept does not occur, or there is nothing to compare; the message lists
        what there is and names the option.

    Guarantees
    ----------
    A stated option is never changed (test_a_stated_concept_is_never_replaced).
    """
    spec, column = _with_columns(spec)
    data = read_study(
        spec.data,
        text=spec.text,
        label=spec.label or None,
        concept=spec.concept,
        split=spec.split or None,
        missing="drop",
    )
    notes = [*data.cautions, *column]
    spec, data, chosen = _with_concepts(spec, data)
    notes += chosen
    spec, chosen = _with_methods(spec)
    notes += chosen
    if spec.experiment == "dialect":
        spec, data, chosen = _with_cells(spec, data)
        notes += chosen
    return spec, replace_cautions(data, notes)


def replace_cautions(data: ConceptTexts, cautions: Sequence[str]) -> ConceptTexts:
    """Return the same texts with other cautions."""
    return ConceptTexts(
        data.texts,
        data.labels,
        data.concepts,
        data.splits,
        name=data.name,
        source=data.source,
        licence=data.licence,
        cautions=tuple(cautions),
    )


def _is_free(spec: StudySpec, name: str) -> bool:
    return spec.is_free(name, make_spec(spec.experiment, spec.preset))


def _with_columns(spec: StudySpec) -> tuple[StudySpec, list[str]]:
    file = Path(spec.data)
    if not file.is_file() or file.suffix.lower() not in ENDINGS:
        return spec, []
    columns, notes = read_columns(file), []
    if spec.text not in columns and _is_free(spec, "text"):
        spec = replace(spec, text=find_text_column(file, columns))
        notes.append(f"The texts are the column {spec.text!r}, which has the longest cells (--set text=).")
    for name in ("text", "label", "concept", "split"):
        if column := getattr(spec, name):
            require_column(file, columns, column, option=name)
    return spec, notes


def _with_concepts(spec: StudySpec, data: ConceptTexts) -> tuple[StudySpec, ConceptTexts, list[str]]:
    """Return the rows of the two concepts that are compared: the stated ones, else the two most frequent ones."""
    counts = Counter(data.concepts)
    shown = ", ".join(f"{name} ({count})" for name, count in counts.most_common(8))
    if len(counts) < 2 or len(counts) > MOST_VALUES:
        raise LabelError(
            f"The column {spec.concept!r} has {len(counts)} values ({shown}{', …' if len(counts) > 8 else ''}); a "
            "study compares two groups. Name another column with --set concept=, or divide the values into two groups."
        )
    pair = {"source": spec.source, "target": spec.target}
    absent = [name for name, value in pair.items() if value not in counts]
    stated = [name for name in absent if not _is_free(spec, name)]
    if stated:
        raise LabelError(
            f"{stated[0]} is {pair[stated[0]]!r}, but the values of the column {spec.concept!r} are {shown}. Choose "
            "two of them with --set source= and --set target=."
        )
    for name in absent:
        other = pair["target" if name == "source" else "source"]
        pair[name] = next(value for value, _ in counts.most_common() if value != other)
    notes = []
    if absent:
        reason = "the two most frequent values" if len(counts) > 2 else "the two values"
        notes.append(
            f"Compared: source={pair['source']} and target={pair['target']}, {reason} of {spec.concept!r} "
            f"({shown}). State others with --set source= and --set target=."
        )
    rows = [concept in pair.values() for concept in data.concepts]
    if not all(rows):
        others = ", ".join(value for value in counts if value not in pair.values())
        notes.append(f"Rows with another value of {spec.concept!r} were left out: {rows.count(False)} ({others}).")
    return replace(spec, source=pair["source"], target=pair["target"]), data.where(rows), notes


def _with_methods(spec: StudySpec) -> tuple[StudySpec, list[str]]:
    """Return the methods of the preset, and MiMiC with pooled covariances, which needs fewer rows."""
    if not _is_free(spec, "methods"):
        return spec, []
    note = f"Methods: those of the paper, and {POOLED}, which suits tables with few rows (--set methods=)."
    return replace(spec, methods=(*spec.methods, POOLED)), [note]


def _with_cells(spec: StudySpec, data: ConceptTexts) -> tuple[StudySpec, ConceptTexts, list[str]]:
    """Return the rows of two labels, and as many rows per cell as every ratio finds."""
    counts, notes = Counter(data.labels), []
    if spec.positive and spec.positive not in counts:
        raise LabelError(
            f"positive is {spec.positive!r}, but the labels are {', '.join(counts)}. Choose one with --set positive=."
        )
    if len(counts) > 2:
        frequent = [label for label, _ in counts.most_common()]
        first = spec.positive or frequent[0]
        kept = {first, next(label for label in frequent if label != first)}
        data = data.where([label in kept for label in data.labels])
        notes.append(
            f"A study of ratios needs two labels: those with the most rows are {' and '.join(sorted(kept))}, and the "
            f"{sum(counts.values()) - len(data)} rows with other labels were left out."
        )
    if len(set(data.labels)) < 2:
        raise LabelError(
            f"The column {spec.label!r} has one value ({data.labels[0]}); a study of ratios needs two labels. Name "
            "another column with --set label=."
        )
    z = np.asarray(data.concepts) == spec.target
    rooms = {label: _room(spec, np.asarray(data.labels) == label, z) for label in sorted(set(data.labels))}
    positive = spec.positive or max(rooms, key=lambda label: (rooms[label], label))
    room = rooms[positive]
    if room < FEWEST_PER_CELL and _is_free(spec, "per_cell"):
        raise DataError(
            f"{data.name} has too few rows of some label and concept for ratios from {min(spec.ratios):g} to "
            f"{max(spec.ratios):g}: {data.counts}. Add rows, or choose fewer ratios, as in --set 'ratios=[0.5, 0.6]'."
        )
    if room < spec.per_cell and _is_free(spec, "per_cell"):
        spec = replace(spec, per_cell=room)
        notes.append(
            f"positive={positive}, per_cell={room}: every ratio finds that many rows of each label (--set per_cell=)."
        )
    return replace(spec, positive=positive), data, notes


def _room(spec: StudySpec, y: NDArray[np.bool_], z: NDArray[np.bool_]) -> int:
    """Return the largest number of rows per label with which every ratio can be drawn; see `sample_ratio`."""
    together, apart = min(np.sum(y & z), np.sum(~y & ~z)), min(np.sum(y & ~z), np.sum(~y & z))
    # each cell is cut to this number of rows before any ratio is drawn
    return int(min(min(together / ratio, apart / (1 - ratio)) for ratio in spec.ratios))
