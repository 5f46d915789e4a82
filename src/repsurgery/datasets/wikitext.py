"""`load_wikitext2`: the test articles of WikiText-2 (Merity et al., 2016), one document each."""

import io
import os
from pathlib import Path

from repsurgery.datasets.documents import Documents
from repsurgery.datasets.folder import present_folder, require_file
from repsurgery.datasets.spreadsheets import decoded
from repsurgery.errors import DataError, MissingExtraError

__all__ = ["load_wikitext2", "split_documents"]

FOLDER = "wikitext2_raw"
FILE = "wiki.test.raw"
REPOSITORY = "Salesforce/wikitext"
REVISION = "b08601e04326c79dfdd32d625aee71d232d685c3"
PARQUET = "wikitext-2-raw-v1/test-00000-of-00001.parquet"
BLANK = " \n"
"""The blank lines around headings in the original file; in the hub's table they are empty cells."""


def load_wikitext2(data_dir: str | os.PathLike[str] | None = None) -> Documents:
    """Return the test documents of WikiText-2 raw, split at their `` = Title = `` lines.

    Parameters
    ----------
    data_dir : str, path or None
        A folder that holds wiki.test.raw. None means ``$REPSURGERY_DATA/wikitext2_raw``, or else the hub's dataset
        ``Salesforce/wikitext``, downloaded once.

    Returns
    -------
    Documents
        The 62 pages of the harness's task ``wikitext``; the rule that finds titles also splits the article
        "Constant k filter" at two lines of a formula.

    Notes
    -----
    Documents are not normalised. The original file, which is rebuilt from the hub's table, has a blank line before and
    after every heading; some copies lack them. Blank lines count as tokens and bytes, so that results from different
    copies are not comparable: compare digests.

    Raises
    ------
    DataError
        The file is missing, or does not start with a title.
    MissingExtraError
        The hub's copy is needed, but huggingface-hub or pyarrow is not installed.
    """
    folder = Path(data_dir) if data_dir is not None else present_folder(FOLDER)
    if folder is not None:
        data = decoded(require_file(folder, FILE, FOLDER), remedy="Fetch the file again.")
        text, origin = io.StringIO(data, newline=None).read(), FILE
    else:
        text, origin = _downloaded(), f"{REPOSITORY} at {REVISION[:7]}"
    return Documents(
        split_documents(text, origin),
        name="wikitext2",
        source=f"Merity et al. 2016, WikiText-2 raw, test, {origin}",
        licence="CC-BY-SA-3.0",
    )


def split_documents(text: str, origin: str) -> tuple[str, ...]:
    """Return the documents of ``text``, each from its title to the line before the next title."""
    documents: list[list[str]] = []
    for line in text.split("\n"):
        if is_title(line):
            documents.append([])
        elif not documents and line.strip():
            raise DataError(
                f"{origin} starts with {line.strip()[:40]!r}, which is not a title line like ' = Robert Boulter = '. "
                "Fetch the raw file, not the one for word models, and cut nothing from its start."
            )
        if documents:
            documents[-1].append(line)
    if not documents:
        raise DataError(f"{origin} is empty. Fetch it again.")
    return tuple("\n".join(lines) for lines in documents)


def is_title(line: str) -> bool:
    """Return whether a line is a title, `` = Title = ``, rather than `` = = Section = = `` or text."""
    joined = line.replace("= = =", "===").replace("= =", "==").strip()
    return joined.startswith("= ") and joined.endswith(" =")


def _downloaded() -> str:
    try:
        import pyarrow
        import pyarrow.parquet
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise MissingExtraError(
            f"Downloading WikiText-2 needs {error.name}: pip install 'repsurgery[data]'. "
            "Or pass a folder, or set REPSURGERY_DATA."
        ) from error
    try:
        file = hf_hub_download(REPOSITORY, PARQUET, repo_type="dataset", revision=REVISION)
        rows = pyarrow.parquet.read_table(file, columns=["text"])["text"].to_pylist()
    except (OSError, ValueError, KeyError, pyarrow.ArrowException) as error:
        raise DataError(
            f"{REPOSITORY} could not be downloaded ({error}). Pass a folder with {FILE}, or set REPSURGERY_DATA to a "
            f"folder that holds it as '{FOLDER}/{FILE}'."
        ) from error
    return "".join(row or BLANK for row in rows)
