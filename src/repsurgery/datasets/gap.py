"""`load_gap`: Wikipedia passages around a gendered pronoun (Webster et al., 2018)."""

import os
from pathlib import Path

from repsurgery.datasets.folder import data_folder, require_file
from repsurgery.datasets.pronouns import gender_of
from repsurgery.datasets.records import ConceptTexts
from repsurgery.datasets.rows import read_rows
from repsurgery.errors import LabelError

__all__ = ["load_gap"]

_FILES = {"train": "gap-development.tsv", "dev": "gap-validation.tsv", "test": "gap-test.tsv"}


def load_gap(folder: str | os.PathLike[str] | None = None) -> ConceptTexts:
    """Return the passages of GAP: concept the gender of the pronoun in question, no task (every label is "all").

    A passage may hold other pronouns too, of either gender.

    Parameters
    ----------
    folder : str, path or None
        Holds gap-development.tsv ("train"), gap-validation.tsv ("dev") and gap-test.tsv ("test");
        None: ``$REPSURGERY_DATA/gap``.

    Raises
    ------
    DataError
        A missing file or column, an empty passage.
    LabelError
        A pronoun that is unknown or missing, with file, line and value.
    """
    root = Path(folder) if folder is not None else data_folder("gap")
    texts, concepts, splits = [], [], []
    for split, name in _FILES.items():
        file = require_file(root, name, "gap")
        for place, (text, pronoun) in read_rows(file, ("Text", "Pronoun"), remedy="Fetch the file again."):
            gender = gender_of(pronoun)
            if gender is None:
                raise LabelError(f"{file}, {place}: '{pronoun}' is no gendered pronoun. Correct the row, or remove it.")
            texts.append(text)
            concepts.append(gender)
            splits.append(split)
    return ConceptTexts(
        tuple(texts),
        ("all",) * len(texts),
        tuple(concepts),
        tuple(splits),
        name="gap",
        source="Webster et al. 2018, google-research-datasets/gap-coreference",
        licence="Apache-2.0",
    )
