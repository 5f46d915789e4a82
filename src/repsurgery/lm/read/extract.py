"""Hidden states of texts at one site, as rows."""

import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray
from torch import nn

from repsurgery.checkpoint import SAVE_SECONDS, recall, uninterrupted
from repsurgery.errors import CacheWarning, ShapeError
from repsurgery.files import Contents, built_from, read_file, write_file
from repsurgery.lm.batching.tokens import check_texts, encode
from repsurgery.lm.chat import Conversation
from repsurgery.lm.read.resuming import Results, folder_of, read_missing
from repsurgery.lm.read.states import check_pooling, reader, turns_to_read

__all__ = ["StoredRows", "extract"]

KIND = "extracted-rows"


def extract(
    model: nn.Module,
    tokenizer: Any,
    texts: Sequence[str | Conversation],
    *,
    site: str = "final",
    pooling: Literal["last", "cls", "mean"] = "last",
    max_length: int | None = None,
    batch_size: int = 32,
    progress: bool = True,
    work_dir: str | os.PathLike[str] | None = None,
) -> NDArray[np.float32]:
    """Return the hidden state of each text at ``site``.

    Parameters
    ----------
    model, tokenizer
        A transformers decoder or encoder and its tokenizer; neither is changed.
    texts : sequence of n strings or conversations
        A conversation is a list of messages with role and content, see `chat_prompt`.
    site : str
        See `resolve_site`.
    pooling : {"last", "cls", "mean"}
        The state of a text's last token, of its first, or the mean over its tokens. Of a conversation that ends with
        the assistant's message, ``last`` is the last token of that message (not the end-of-turn token that the template
        writes after it) and ``mean`` is taken over the tokens of the assistant's turns. Of a conversation that ends
        with the user's message, ``last`` is the last token of what the template writes before an answer, from which
        the answer's first token is predicted, and ``mean`` is taken over all tokens.
    max_length : int or None
        Read only the first ``max_length`` tokens of longer texts; None raises an error for a text beyond the context.
    batch_size : int
        Texts per pass; halved, with a warning, if memory is exhausted.
    progress : bool
        Show a progress bar.
    work_dir : path or None
        Store finished rows there; the same call resumes after an interruption and reads nothing twice. Finished work
        is identified by the content of texts and model, see `lm.fingerprint`.

    Returns
    -------
    (n, d) float32 array, in the order of ``texts``.

    Guarantees
    ----------
    Rows depend neither on padding side nor on batch size, beyond rounding
    (test_rows_do_not_depend_on_padding_side_or_batch_size).
    A changed model is read again (test_a_changed_model_is_read_anew).
    An interruption loses nothing (test_an_interrupted_extraction_goes_on_where_it_stopped).
    A turn of the assistant is read as in the whole conversation (test_the_assistants_turn_is_what_is_read).
    Damaged files are replaced (test_a_damaged_work_file_is_read_anew).
    """
    texts = check_texts(texts, caller="extract", tokenizer=tokenizer)
    check_pooling(pooling, ("last", "cls", "mean"))
    tokens = encode(model, tokenizer, texts, max_length=max_length, caller="extract")
    turns = turns_to_read(tokenizer, texts, tokens, pooling)
    settings: dict[str, Any] = {"job": "extract", "site": site, "pooling": pooling, "tokens": tokens}
    settings |= {} if turns is None else {"turns": turns}
    store = StoredRows(len(texts), folder_of(work_dir, model, texts, settings))
    options: dict[str, Any] = {
        "batch_size": batch_size,
        "progress": progress,
        "label": f"reading {site}",
        "turns": turns,
    }
    with reader(model, tokenizer, [site], pooling) as read:
        read_missing(store, lambda batch, states: store.take(batch, states[site]), model, read, tokens, **options)
    return store.rows


class StoredRows(Results):
    """Rows by text index, kept in files of a folder where there is one."""

    def __init__(self, n: int, folder: Path | None, *, dtype: DTypeLike = np.float32) -> None:
        super().__init__(n)
        self.rows: NDArray[Any] = np.empty((n, 0), dtype=dtype)
        self._folder = folder
        self._unsaved: list[int] = []
        self._saved_at = time.monotonic()
        for path in sorted(folder.glob("rows-*.safetensors")) if folder else []:
            part, damage = recall(path, self._read)
            if part is not None:
                self.take(*part)
            elif damage is not None:
                warnings.warn(f"Some texts are read anew: {damage}", CacheWarning, stacklevel=3)
                path.unlink()
        self._unsaved = []

    def _read(self, path: Path) -> tuple[list[int], NDArray[Any]]:
        """Return the indices and rows in a file, or raise a `FileFormatError`."""
        contents = read_file(path, kind=KIND)
        with built_from("rows of these texts"):
            index, rows = contents.arrays["index"], contents.arrays["rows"]
            known = index.ndim == 1 and index.dtype.kind == "i" and np.isin(index, np.arange(len(self._done))).all()
            width = self.rows.shape[1] if self._done.any() else rows.shape[1]
            if not known or rows.dtype != self.rows.dtype or rows.shape != (len(index), width):
                raise ShapeError(f"It has {index.dtype} indices {index.shape} and {rows.dtype} rows {rows.shape}.")
            return index.tolist(), rows

    def take(self, index: list[int], rows: NDArray[Any]) -> None:
        """Take in the ``rows`` of the texts at ``index``."""
        if not self._done.any():
            self.rows = np.empty((len(self._done), rows.shape[1]), dtype=self.rows.dtype)
        self.rows[index] = rows
        self._done[index] = True
        self._unsaved += index
        if time.monotonic() - self._saved_at > SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Write what is new to a file of its own."""
        if self._folder is None or not self._unsaved:
            return
        with uninterrupted():
            index = np.array(self._unsaved)
            path = self._folder / f"rows-{int(index.min())}-{int(self._done.sum())}.safetensors"
            write_file(path, Contents(KIND, {}, {"index": index, "rows": self.rows[index]}))
            self._unsaved = []
            self._saved_at = time.monotonic()
