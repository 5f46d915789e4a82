"""`load_bios`: biographies with profession and gender (De-Arteaga et al., 2019)."""

import os
from collections.abc import Iterator
from pathlib import Path

from repsurgery.datasets.folder import fetch, present_folder
from repsurgery.datasets.records import ConceptTexts
from repsurgery.datasets.rows import ENDINGS, read_rows, split_files, split_of, text_of
from repsurgery.errors import DataError, LabelError
from repsurgery.pickles import read_plain_pickle

__all__ = ["PROFESSIONS", "load_bios"]

REPOSITORY = "LabHC/bias_in_bios"
REVISION = "052f01de644dba841176e0449528b41f27d94a61"

PROFESSIONS = (
    "accountant",
    "architect",
    "attorney",
    "chiropractor",
    "comedian",
    "composer",
    "dentist",
    "dietitian",
    "dj",
    "filmmaker",
    "interior_designer",
    "journalist",
    "model",
    "nurse",
    "painter",
    "paralegal",
    "pastor",
    "personal_trainer",
    "photographer",
    "physician",
    "poet",
    "professor",
    "psychologist",
    "rapper",
    "software_engineer",
    "surgeon",
    "teacher",
    "yoga_teacher",
)
"""The 28 professions in the order of their numbers on the hub's dataset card."""

_PROFESSION = {name: name for name in PROFESSIONS} | {str(i): name for i, name in enumerate(PROFESSIONS)}
# the hub's dataset card: male 0, female 1
_GENDER = {"0": "male", "m": "male", "male": "male", "1": "female", "f": "female", "female": "female"}
_PICKLES = (".pickle", ".pkl")
_COLUMNS = ("hard_text", "profession", "gender")

Biography = tuple[str, str, str, str]
"""Text, profession, gender, split."""


WHOLE = 390_000
"""With fewer rows the data is a part of Bias in Bios, and is named after its file or folder."""


def load_bios(source: str | os.PathLike[str] | None = None) -> ConceptTexts:
    """Return biographies without their first sentence: label the profession, concept "female" or "male".

    Parameters
    ----------
    source : str, path or None
        A file or folder in one of three forms: the hub's Parquet files; the pickles of Ravfogel et al. (2020), read as
        data and never executed; tables (CSV, TSV, JSON Lines) with the columns hard_text, profession and gender.
        Professions are names or the hub's numbers; genders are f/m, female/male or the hub's 1/0. None means the folder
        ``$REPSURGERY_DATA/bias_in_bios`` or ``bias_in_bios_samples``, or else the hub's dataset ``LabHC/bias_in_bios``,
        downloaded once.

    Returns
    -------
    ConceptTexts
        Rows in the order of the files. Files named train, dev and test define the splits; in a folder of other tables
        only the first of equal rows is kept. Professions that do not occur are listed as a caution.

    Notes
    -----
    The pickles hold 255,710 / 39,369 / 98,344 biographies with tokenised text, the hub 257,478 / 39,642 / 99,069:
    results from one are not comparable with results from the other.

    Raises
    ------
    DataError
        There is nothing to read, a column is missing, a text is empty, a file is damaged, or a pickle refers to code.
    LabelError
        A profession or gender is unknown or missing; the message gives file, row and value.
    """
    path, origin = (Path(source), Path(source).name) if source is not None else _default_source()
    rows = list(_folder(path) if path.is_dir() else _file(path, split_of(path) or ""))
    texts, labels, concepts, splits = zip(*rows, strict=True)
    return ConceptTexts(
        texts,
        labels,
        concepts,
        splits if any(splits) else (),
        name="bias_in_bios" if len(texts) >= WHOLE else path.stem,
        source=f"De-Arteaga et al. 2019, {origin}",
        licence="MIT",
        cautions=_absent(labels),
    )


def _absent(labels: tuple[str, ...]) -> tuple[str, ...]:
    present = set(labels)
    absent = [name for name in PROFESSIONS if name not in present]
    if not absent:
        return ()
    return (f"{len(absent)} of the {len(PROFESSIONS)} professions do not occur: {', '.join(absent)}.",)


def _default_source() -> tuple[Path, str]:
    folder = present_folder("bias_in_bios") or present_folder("bias_in_bios_samples")
    return (folder, folder.name) if folder is not None else (_downloaded(), f"{REPOSITORY} at {REVISION[:7]}")


def _downloaded() -> Path:
    return fetch(REPOSITORY, revision=REVISION, files=["data/*.parquet"], folder="bias_in_bios") / "data"


def _folder(folder: Path) -> Iterator[Biography]:
    splits = split_files(folder, (*_PICKLES, *ENDINGS))
    if splits:
        for split, file in splits:
            yield from _file(file, split)
        return
    files = [file for file in sorted(folder.iterdir()) if file.suffix.lower() in ENDINGS]
    if not files:
        raise DataError(f"{folder} holds no biographies. Put Parquet, pickle, CSV or JSON Lines files there.")
    yield from dict.fromkeys(row for file in files for row in _file(file, ""))


def _file(file: Path, split: str) -> Iterator[Biography]:
    rows = _pickled(file) if file.suffix.lower() in _PICKLES else read_rows(file, _COLUMNS, remedy="Rename yours.")
    for place, (text, profession, gender) in rows:
        yield (
            text,
            _known(profession.lower().replace(" ", "_"), _PROFESSION, f"{file}, {place}: the profession", profession),
            _known(gender.lower(), _GENDER, f"{file}, {place}: the gender", gender),
            split,
        )


def _known(key: str, names: dict[str, str], place: str, value: str) -> str:
    if key not in names:
        raise LabelError(
            f"{place} '{value}' is unknown; it must be one of {', '.join(names)}. Correct the row, or remove it."
        )
    return names[key]


def _pickled(file: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    rows = read_plain_pickle(file)
    if not isinstance(rows, list) or not rows:
        raise DataError(f"{file} holds a {type(rows).__name__}, not a filled list of dicts. Fetch it again.")
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise DataError(f"{file}, row {number}: a {type(row).__name__}. Save one dict per biography.")
        text, *labels = (text_of(file, f"row {number}", row, key).strip() for key in ("hard_text", "p", "g"))
        if not text:
            raise DataError(f"{file}, row {number}: 'hard_text' is empty or missing. Remove the row.")
        if not all(labels):
            raise LabelError(f"{file}, row {number}: 'p' or 'g' is empty or missing. Label the row, or remove it.")
        yield f"row {number}", (text, *labels)
