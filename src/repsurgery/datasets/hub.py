"""`fetch`: the files of a dataset on the Hugging Face Hub, downloaded once."""

from pathlib import Path

from repsurgery.errors import DataError, MissingExtraError

__all__ = ["fetch"]


def fetch(repository: str, *, revision: str, files: list[str], folder: str) -> Path:
    """Return the local snapshot of a dataset; its folder is named after the commit.

    Parameters
    ----------
    repository, revision : str
        The dataset's id, and a commit or branch of it.
    files : list of str
        Patterns of the files that are needed.
    folder : str
        What ``$REPSURGERY_DATA`` would call the dataset, for the message of a failure.
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
