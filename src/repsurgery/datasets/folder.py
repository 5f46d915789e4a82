"""Datasets that are not part of this package: `data_folder` finds local copies, `fetch` downloads from the hub."""

import os
from pathlib import Path

from repsurgery.errors import DataError, MissingExtraError

__all__ = ["ORIGINS", "data_folder", "fetch", "file_in", "present_folder", "require_file"]

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
        The variable is not set, or the folder does not exist; the message says where its files are published.
    """
    if (folder := present_folder(name)) is not None:
        return folder
    root = os.environ.get(VARIABLE)
    problem = f"{VARIABLE} is not set" if not root else f"There is no folder {Path(root) / name}"
    origin = f" Its files: {ORIGINS[name]}." if name in ORIGINS else ""
    raise DataError(
        f"{problem}, so the dataset '{name}' cannot be found. Pass its folder, or set {VARIABLE} to a folder that "
        f"holds it as '{name}'.{origin}"
    )


def present_folder(name: str) -> Path | None:
    """Return the folder ``$REPSURGERY_DATA/name``, or None if it does not exist."""
    root = os.environ.get(VARIABLE)
    return folder if root and (folder := Path(root) / name).is_dir() else None


def require_file(folder: Path, name: str, dataset: str) -> Path:
    """Return ``folder / name``; if it does not exist, raise an error that says where the dataset is published."""
    file = folder / name
    if not file.is_file():
        raise DataError(f"There is no file {file}. The files of '{dataset}': {ORIGINS[dataset]}.")
    return file


def file_in(path: Path, names: tuple[str, ...], dataset: str) -> Path:
    """Return the first of the files ``names`` in the folder ``path``, or ``path`` itself if it is not a folder."""
    if not path.is_dir():
        return path
    for file in (path / name for name in names):
        if file.is_file():
            return file
    raise DataError(f"{path} holds no {' or '.join(names)}. The files of '{dataset}': {ORIGINS[dataset]}.")


def fetch(repository: str, *, revision: str, files: list[str], folder: str) -> Path:
    """Return the local snapshot of a dataset; its folder is named after the commit.

    Parameters
    ----------
    repository, revision : str
        The dataset's id, and a commit or branch of it.
    files : list of str
        Patterns of the files that are needed.
    folder : str
        The name of the dataset's folder in ``$REPSURGERY_DATA``, for the error message.
    """
    instead = f"Pass a folder of its files, or set REPSURGERY_DATA to a folder that holds it as '{folder}'."
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise MissingExtraError(
            f"Downloading {repository} needs huggingface-hub: pip install 'repsurgery[data]'. {instead}"
        ) from error
    try:
        return Path(snapshot_download(repository, repo_type="dataset", revision=revision, allow_patterns=files))
    except (OSError, ValueError) as error:
        raise DataError(f"{repository} could not be downloaded ({error}). {instead}") from error
