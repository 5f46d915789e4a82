"""Prompts and tables for a chat: plain texts become messages, and files may hold whole conversations."""

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from repsurgery.datasets import LabelledTexts, load_courtesy, read_table
from repsurgery.datasets.rows import read_rows
from repsurgery.datasets.spreadsheets import decoded
from repsurgery.errors import DataError, OptionsError, ParameterError, TextError
from repsurgery.lm.chat import ChatText, as_text, is_conversation

__all__ = ["in_chat", "read_prompts", "read_texts", "speaks_in_chat"]

_CONVERSATIONS = (".jsonl", ".ndjson")
COURTESY = "courtesy"
_AS_MESSAGES = (
    "Each text was read as a user's message, through the chat template; name a column of prompts with --prompt-column "
    "to read the texts as answers of the assistant."
)
_TABLES = (".csv", ".tsv", ".parquet", ".pq")


def in_chat(prompts: Iterable[Any]) -> list[str]:
    """Return each plain text as a user's message, and each conversation as it is."""
    return [prompt if isinstance(prompt, ChatText) else _asked(prompt) for prompt in prompts]


def _asked(prompt: Any) -> ChatText:
    return as_text(prompt if is_conversation(prompt) else [{"role": "user", "content": prompt}])


def speaks_in_chat(prompts: Iterable[Any]) -> bool:
    """Return whether any of ``prompts`` is a conversation."""
    return any(isinstance(prompt, ChatText) or is_conversation(prompt) for prompt in prompts)


def read_prompts(path: str | os.PathLike[str]) -> list[str]:
    """Return the prompts in a file.

    A text file holds one prompt per line; blank lines are skipped. In a file that ends in .jsonl, each line is JSON: a
    string, a list of messages, or an object with ``messages`` or with ``prompt``. Messages become a `ChatText`.
    """
    file = Path(path)
    if file.suffix.lower() in _TABLES:
        raise ParameterError(
            f"{path} is a table; prompts are read from a text file with one prompt on each line, or from a .jsonl "
            "file with messages on each line."
        )
    try:
        lines = decoded(file).split("\n")
    except (FileNotFoundError, IsADirectoryError) as error:
        raise ParameterError(
            f"There is no file of prompts {path}. Give a text file with one prompt per line."
        ) from error
    of_line = _of_json if file.suffix.lower() in _CONVERSATIONS else _of_text
    prompts = [of_line(file, i, line.strip()) for i, line in enumerate(lines, start=1) if line.strip()]
    if not prompts:
        raise DataError(f"{path} holds no prompts. Write one prompt on each line.")
    return prompts


def _of_text(file: Path, number: int, line: str) -> str:
    return line


def _of_json(file: Path, number: int, line: str) -> str:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise DataError(f"{file}, line {number} is not JSON ({error}). Write one JSON value on each line.") from error
    if isinstance(value, dict):
        value = value.get("messages", value.get("prompt"))
    if isinstance(value, str) and value.strip():
        return value
    if not isinstance(value, list):
        raise DataError(
            f"{file}, line {number} holds no prompt. Write a list of messages with role and content, an object with "
            "messages or prompt, or a string."
        )
    try:
        return as_text(value)
    except TextError as error:
        raise DataError(f"{file}, line {number}: {error}") from error


def read_texts(
    table: str | os.PathLike[str], *, text: str, label: str, chat: bool = False, prompt: str | None = None
) -> tuple[LabelledTexts, str]:
    """Return the texts of a table and a sentence on how they are read, which is empty for plain texts.

    Parameters
    ----------
    table, text, label
        See `read_table`. Without a file of this name, "courtesy" is the embedded corpus.
    chat : bool
        Read every text through the chat template of the model.
    prompt : str or None
        With ``chat``: the column of the user's messages, to which the texts are the assistant's answers. None: the
        texts are the user's messages themselves, which every template allows.
    """
    corpus = None
    if os.fspath(table) == COURTESY and not Path(table).exists():
        if (text, label, prompt) != ("text", "label", None):
            raise OptionsError(
                f"The embedded texts {COURTESY!r} have one column of texts and one of labels. Name none."
            )
        corpus = load_courtesy()
    if not chat:
        if prompt is not None:
            raise OptionsError("--prompt-column names the user's messages of a chat. Add --chat, or leave it out.")
        return corpus or read_table(table, text=text, label=label), ""
    if corpus is not None:
        return replace(corpus, texts=tuple(map(_asked, corpus.texts))), _AS_MESSAGES
    file = Path(table)
    columns = (text, label) if prompt is None else (text, label, prompt)
    remedy = "Name yours with text=, label= and prompt=."
    rows = [cells for _, cells in read_rows(file, columns, remedy=remedy)]
    texts = [_asked(cells[0]) if prompt is None else _answered(cells[2], cells[0]) for cells in rows]
    labelled = LabelledTexts(tuple(texts), tuple(cells[1] for cells in rows), name=file.stem, source=file.name)
    if prompt is not None:
        return labelled, "Each text was read as the assistant's answer to its prompt, through the chat template."
    return labelled, _AS_MESSAGES


def _answered(prompt: str, text: str) -> ChatText:
    return as_text([{"role": "user", "content": prompt}, {"role": "assistant", "content": text}])
