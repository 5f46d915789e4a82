"""`data_folder`: where the datasets lie that this package neither holds nor may pass on."""

import os
from pathlib import Path

from repsurgery.errors import DataError

__all__ = ["ORIGINS", "data_folder", "file_in", "present_folder", "require_file"]

VARIABLE = "REPSURGERY_DATA"

ORIGINS = {
    "bias_in_bios": "https://huggingface.co/datasets/LabHC/bias_in_bios (folder data)",
    "dialect": "https://github.com/yanaiela/demog-text-removal, which rebuilds it from "
    "http://slanglab.cs.umass.edu/TwitterAAE",
    "gap": "https://github.com/google-research-datasets/gap-coreference",
    "jigsaw": "https://www.kaggle.com/c/jigsaw-toxic-comment-classification-challenge (train.csv)",
    "paradetox": "https://github.com/s-nlp/paradetox (paradetox/paradetox.tsv)",
    "realtoxicityprompts": "https://huggingface.co/datasets/allenai/real-toxicity-prompts (prompts.jsonl)",
    "sentiment140_100k": "http://help.sentiment140.com, split into positive.txt and negative.txt",
    "twitteraae_dialect_model": "https://github.com/slanglab/twitteraae (folder model)",
    "twitteraae_sentiment": "https://github.com/mohummedalee/twitteraae-sentiment-data (data/raw/sentiment_race)",
    "wikitext2_raw": "https://huggingface.co/datasets/Salesforce/wikitext (wikitext-2-raw-v1, the test split)",
    "winobias": "https://github.com/uclanlp/corefBias (folder WinoBias/wino/data)",
}
"""Where each dataset is published."""


def data_folder(name: str) -> Path:
    """Return the folder ``$REPSURGERY_DATA/name``.

    Raises
    ------
    DataError
        The variable is not set, or the folder is not there; the message says where its files are published.
    """
    found = present_folder(name)
    if found is not None:
        return found
    root = os.environ.get(VARIABLE)
    problem = f"{VARIABLE} is not set" if not root else f"There is no folder {Path(root) / name}"
    origin = f" Its files: {ORIGINS[name]}." if name in ORIGINS else ""
    raise DataError(
        f"{problem}, so the dataset '{name}' cannot be found. Pass its folder, or set {VARIABLE} to a folder that "
        f"holds it as '{name}'.{origin}"
    )


def present_folder(name: str) -> Path | None:
    """Return the folder ``$REPSURGERY_DATA/name``, or None where there is none."""
    root = os.environ.get(VARIABLE)
    return folder if root and (folder := Path(root) / name).is_dir() else None


def require_file(folder: Path, name: str, dataset: str) -> Path:
    """Return ``folder / name``, or say where the dataset is published."""
    file = folder / name
    if not file.is_file():
        raise DataError(f"There is no file {file}. The files of '{dataset}': {ORIGINS[dataset]}.")
    return file


def file_in(path: Path, names: tuple[str, ...], dataset: str) -> Path:
    """Return the first of ``names`` that a folder holds, or the path itself where it is none."""
    if not path.is_dir():
        return path
    found = [path / name for name in names if (path / name).is_file()]
    if not found:
        raise DataError(f"{path} holds no {' or '.join(names)}. The files of '{dataset}': {ORIGINS[dataset]}.")
    return found[0]
