"""`load_gap` and `load_winobias`: texts whose concept is the gender of an English pronoun."""

import os
import re
from pathlib import Path

from repsurgery.datasets.folder import data_folder, require_file
from repsurgery.datasets.records import ConceptTexts
from repsurgery.datasets.rows import read_rows
from repsurgery.datasets.spreadsheets import decoded
from repsurgery.errors import DataError, LabelError

__all__ = ["gender_of", "load_gap", "load_winobias"]

_GENDERS = dict.fromkeys(("she", "her", "hers", "herself"), "female") | dict.fromkeys(
    ("he", "him", "his", "himself"), "male"
)
_GAP_FILES = {"train": "gap-development.tsv", "dev": "gap-validation.tsv", "test": "gap-test.tsv"}
_SPLITS = {
    "train": "pro_stereotyped_type{}.txt.dev",
    "dev": "anti_stereotyped_type{}.txt.dev",
    "test-pro": "pro_stereotyped_type{}.txt.test",
    "test-anti": "anti_stereotyped_type{}.txt.test",
}
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_NUMBER = re.compile(r"^\d+\s+")
_ARTICLE = re.compile(r"^(the|an|a)\s+", re.IGNORECASE)
# "notified the [the chief]": the article occurs twice
_TWICE = re.compile(r"\b(the)\s+\[\s*the\b", re.IGNORECASE)


def gender_of(word: str) -> str | None:
    """Return "female" or "male", or None for any other word."""
    return _GENDERS.get(word.strip().lower())


def load_gap(folder: str | os.PathLike[str] | None = None) -> ConceptTexts:
    """Return the Wikipedia passages of GAP (Webster et al., 2018), with the gender of a pronoun as the concept.

    There is no task: every label is "all". A passage may hold other pronouns too, of either gender.

    Parameters
    ----------
    folder : str, path or None
        Holds gap-development.tsv ("train"), gap-validation.tsv ("dev") and gap-test.tsv ("test");
        None: ``$REPSURGERY_DATA/gap``.

    Raises
    ------
    DataError
        A file or column is missing, or a passage is empty.
    LabelError
        A pronoun is unknown or missing; the message gives file, line and value.
    """
    root = Path(folder) if folder is not None else data_folder("gap")
    texts, concepts, splits = [], [], []
    for split, name in _GAP_FILES.items():
        file = require_file(root, name, "gap")
        for place, (text, pronoun) in read_rows(file, ("Text", "Pronoun"), remedy="Fetch the file again."):
            gender = gender_of(pronoun)
            if gender is None:
                raise LabelError(
                    f"{file}, {place}: '{pronoun}' is not a gendered pronoun. Correct the row, or remove it."
                )
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


def load_winobias(folder: str | os.PathLike[str] | None = None) -> ConceptTexts:
    """Return the sentences of WinoBias (Zhao et al., 2018): label an occupation, concept the gender of its pronoun.

    The splits encode the stereotype: "train" and "dev" are the pro- and anti-stereotyped sentences of the published
    development set, "test-pro" and "test-anti" those of its test set. Pro and anti hold the same sentences with the
    opposite pronoun: in "train" alone, gender determines which of the two lists the occupation is in; in "train" and
    "dev" together, it is independent of the occupation. In type 1 the pronoun is mostly the subject of a clause (he,
    she), in type 2 mostly an object (him, her), and "her" is also possessive.

    Parameters
    ----------
    folder : str, path or None
        Holds {pro,anti}_stereotyped_type{1,2}.txt.{dev,test} and {female,male}_occupations.txt;
        None: ``$REPSURGERY_DATA/winobias``.

    Returns
    -------
    ConceptTexts
        Sentences without line numbers and brackets ("the [the chief]" becomes "the chief"), by split, type and line.

    Raises
    ------
    DataError
        A file is missing, or a line lacks an occupation and a pronoun in brackets; the message gives its number.
    LabelError
        An occupation is not in the lists, a word is not a pronoun, or the pronouns have two genders.
    """
    root = Path(folder) if folder is not None else data_folder("winobias")
    known = _occupations(root)
    rows = [
        (*_parsed(line, known, f"{file}, line {number}"), split)
        for split, pattern in _SPLITS.items()
        for kind in (1, 2)
        for file in (require_file(root, pattern.format(kind), "winobias"),)
        for number, line in enumerate(_lines(file), start=1)
    ]
    texts, labels, concepts, splits = zip(*rows, strict=True)
    return ConceptTexts(
        texts,
        labels,
        concepts,
        splits,
        name="winobias",
        source="Zhao et al. 2018, uclanlp/corefBias",
        licence="MIT",
        cautions=(
            "Test sentences come in pairs that differ in the pronoun alone: rows are not independent, so intervals and "
            "'by sampling alone' are wider than the pairing warrants, and a sentence's nearest row is often its twin.",
        ),
    )


def _lines(file: Path) -> list[str]:
    lines = decoded(file, remedy="Fetch the file again.").strip().split("\n")
    if lines == [""]:
        raise DataError(f"{file} holds no lines. Fetch the file again.")
    return [line.strip() for line in lines]


def _occupations(root: Path) -> dict[str, str]:
    files = [require_file(root, f"{gender}_occupations.txt", "winobias") for gender in ("female", "male")]
    return {name.lower(): name for file in files for name in _lines(file)}


def _parsed(line: str, known: dict[str, str], place: str) -> tuple[str, str, str]:
    sentence = _TWICE.sub("[the", _NUMBER.sub("", line))
    bracketed = [part.strip() for part in _BRACKETS.findall(sentence)]
    text = _BRACKETS.sub(lambda match: match.group(1).strip(), sentence)
    if len(bracketed) < 2 or "[" in text or "]" in text:
        raise DataError(
            f"{place}: needs an occupation and a pronoun in [brackets], got '{line}'. Fetch the file again."
        )
    occupation = _ARTICLE.sub("", bracketed[0])
    if occupation.lower() not in known:
        raise LabelError(f"{place}: '{occupation}' is in neither list of occupations. Correct the line, or remove it.")
    genders = {gender_of(word) for word in bracketed[1:]}
    if len(genders) > 1 or None in genders:
        words = ", ".join(bracketed[1:])
        raise LabelError(f"{place}: needs pronouns of one gender in brackets, got {words}. Correct the line.")
    return text, known[occupation.lower()], str(genders.pop())
