"""Apply a steering to vectors in a file, or to the states of texts, and write the steered vectors."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

import repsurgery as rs
from repsurgery import lm
from repsurgery.arrays import Rows, check_labels, output_dtype
from repsurgery.checkpoint import atomic_file
from repsurgery.datasets.rows import Numbered, numbered_rows, require_one_type, text_of
from repsurgery.errors import DataError, LabelError, NonFiniteError, OptionsError, ParameterError, ShapeError
from repsurgery.lm.sites.names import resolve_site
from repsurgery.lm.steer.early import check_places
from repsurgery.lm.steer.placement import Placement
from repsurgery.lm.steer.placing import compare_origin
from repsurgery.origin import IN_CHAT
from repsurgery.outputs import check_output
from repsurgery.scale.formats.arrow import vector_columns, vectors
from repsurgery.scale.formats.raw import SafetensorsArray
from repsurgery.scale.formats.stored import family_of, label_family, narrowed, widened
from repsurgery.scale.formats.tables import PARQUET, open_table
from repsurgery.scale.formats.written import (
    replaced,
    text_batch,
    with_column,
    write_npy,
    write_parquet,
    write_safetensors,
)
from repsurgery.scale.shards.patterns import stored_at
from repsurgery.steering.function import EVERYBODY
from repsurgery.workflows.prompts import in_chat
from repsurgery.workflows.steerings import SteeringFile, recognised

__all__ = ["Applied", "apply_to_texts", "apply_to_vectors", "holds_texts"]

Pooled = Literal["last", "cls", "mean"]

TEXTS = (".csv", ".tsv", ".jsonl", ".ndjson")
VECTORS = (".npy", ".safetensors", *PARQUET)
COLUMN = "vectors"
"""The name of a new column or tensor."""
KEPT = ("float16", "bfloat16", "float32", "float64")
"""The number formats in which vectors are written as they came; the function makes floats of all others."""
BLOCK = 2**24
"""Bytes of vectors in memory at a time, as float64."""


@dataclass(slots=True)
class Applied:
    """What was done to the rows of a file.

    Attributes
    ----------
    rows, features : int
    dtype : str
        The number format of the steered vectors.
    steered : float
        How many rows the gate, or their labels, selected; behind a soft gate, the sum of its strengths.
    moved, length : float
        The sums over all rows x of the displacement ‖steered − x‖ and of ‖x‖.
    """

    rows: int
    features: int
    dtype: str
    steered: float = 0.0
    moved: float = 0.0
    length: float = 0.0


def holds_texts(source: str | os.PathLike[str], text: str | None = None) -> bool:
    """Return whether a file is a table of texts: by its ending, or, of a Parquet file, by a named column ``text``."""
    ending = Path(source).suffix.lower()
    if ending not in (*TEXTS, *VECTORS):
        raise ParameterError(
            f"{source} ends in '{ending}'; vectors are read from {', '.join(VECTORS)}, and texts from "
            f"{', '.join(TEXTS)}, or from Parquet with text_column=."
        )
    return ending in TEXTS or (text is not None and ending in PARQUET)


def apply_to_vectors(
    opened: SteeringFile,
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    columns: Sequence[str] = (),
    label_column: str | None = None,
    labels: str | os.PathLike[str] | None = None,
) -> Applied:
    """Write the vectors of ``source``, steered at the strength of ``opened``, to ``out``.

    Parameters
    ----------
    opened : SteeringFile
        See `open_steering`.
    source : path
        A .npy, .safetensors or .parquet file of n vectors.
    out : path
        Its ending names the format. From Parquet to Parquet and from safetensors to safetensors, everything beside the
        vectors is kept.
    columns : sequence of str
        The column of lists, the columns of features, or the tensor; empty: the only one there is.
    label_column, labels
        The column or tensor of labels in ``source``, or a file of them. Labels take the place of the gate.

    Guarantees
    ----------
    Every format gives the rows of the function itself, in their own number format
    (test_every_format_gives_the_function), and what is beside them is kept (test_what_is_beside_the_vectors_is_kept).
    Rows that are not steered come back bit for bit (test_rows_outside_the_gate_come_back_bit_for_bit).
    A refusal leaves the output as it was (test_a_refusal_leaves_the_output_as_it_was).
    """
    file, place = Path(source), _place(out, [source, labels])
    labelled = label_column is not None or labels is not None
    at = opened.placement
    _check_labels_wanted(at.function, labelled=labelled)
    stored = stored_at(file, tuple(columns), label_column if labels is None else None, ndim=2)
    if isinstance(stored, SafetensorsArray) and "repsurgery" in (stored.contents()[1].get("__metadata__") or {}):
        raise DataError(f"{file} is a file of repsurgery, such as a steering, not vectors. Name the vectors second.")
    header = stored.header()
    if len(header.shape) != 2 or 0 in header.shape or family_of(header.dtype) != "number":
        raise ShapeError(
            f"{file} holds {header.dtype} of shape {header.shape}; vectors are numbers of shape (rows, features), one "
            "row per vector."
        )
    n, d = header.shape
    if d != at.function.dim:
        raise ShapeError(
            f"{file} holds vectors of {d} features; the steering was made for {at.function.dim}. Extract them at "
            f"the site where it was fitted ({at.site if opened.site_known else 'unknown'})."
        )
    concept = _stored_labels(file if labels is None else Path(labels), label_column, n) if labelled else None
    steer = _Steer(at, str(file), concept, n, d, header.dtype)
    if file.suffix.lower() in PARQUET and place.suffix.lower() in PARQUET:
        with atomic_file(place) as stream:
            write_parquet(stream, _steered_table(file, tuple(columns), label_column, steer))
        return steer.applied
    inside = isinstance(stored, SafetensorsArray)
    name = stored.chosen() if isinstance(stored, SafetensorsArray) else COLUMN
    blocks = map(steer, stored.blocks(_block(d), 0, n))
    _write(place, blocks, steer.applied, name, beside=file if inside else None)
    return steer.applied


def apply_to_texts(
    opened: SteeringFile,
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    text: str = "text",
    label_column: str | None = None,
    model: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    chat: bool = False,
    pooling: Pooled | None = None,
    max_length: int | None = None,
    progress: bool = True,
) -> tuple[Applied, str]:
    """Write the states of texts at the site of ``opened``, steered at its strength, to ``out``.

    Parameters
    ----------
    opened : SteeringFile
        See `open_steering`.
    source : path
        A table, see `read_table`.
    out : path
        Its ending names the format; beside the vectors in Parquet, the columns of the table are kept.
    text : str
        The column of the texts.
    label_column : str or None
        The column of labels, which take the place of the gate.
    model, device, dtype
        See `lm.load`; None is the model on which the steering was fitted.
    chat : bool
        Read each text as a user's message, through the chat template.
    pooling, max_length
        See `lm.extract`; None is the pooling in the file, where it gives one vector per text, else "last".

    Returns
    -------
    Applied, str
        What was done, and a phrase on what was read.

    Warns
    -----
    OriginWarning
        The steering was fitted at another site, on another model, or in a chat and is used without one, or the other
        way round.

    Guarantees
    ----------
    The vectors are those of a steered pass at the site (test_texts_give_the_states_of_a_steered_pass).
    """
    file, place = Path(source), _place(out, [source, model])
    site, function, origin = opened.placement.site, opened.placement.function, opened.placement.function.origin
    _check_labels_wanted(function, labelled=label_column is not None)
    name = model or origin.model
    if name is None:
        raise ParameterError(
            f"{file} holds texts, and the steering names no model to read them with. Name it with model=, or give "
            f"vectors as {', '.join(VECTORS)}."
        )
    columns = (text,) if label_column is None else (text, label_column)
    remedy = f"Name the texts with text_column=, or give vectors as {', '.join(VECTORS)}."
    table = numbered_rows(file, columns, remedy=remedy)
    if label_column is not None:
        require_one_type(file, label_column, table)
    cells = [[text_of(file, where, row, column).strip() for column in columns] for where, row in table]
    for (where, _), row in zip(table, cells, strict=True):
        if not all(row):
            raise DataError(
                f"{file}, {where}: the column '{columns[row.index('')]}' is empty. Fill it in, or remove the row."
            )
    texts, concept = [row[0] for row in cells], None if label_column is None else [row[1] for row in cells]
    stated = (origin.pooling or "").removesuffix(IN_CHAT)
    pooled: Any = pooling or (stated if stated in get_args(Pooled) else "last")
    opened.warn_about_chat(chat=chat)
    check_places(name, [(site, function.dim)])
    network, tokenizer = lm.load(name, device=device, dtype=dtype)
    (known,) = recognised([opened], network)
    compare_origin(network, resolve_site(network, site), known.placement.function)
    X = lm.extract(
        network,
        tokenizer,
        in_chat(texts) if chat else texts,
        site=site,
        pooling=pooled,
        max_length=max_length,
        progress=progress,
    )
    steer = _Steer(known.placement, str(file), concept, len(X), X.shape[1], str(X.dtype))
    size = _block(X.shape[1])
    if place.suffix.lower() in PARQUET:
        beside = _whole_table(file, size) if file.suffix.lower() in PARQUET else _text_batches(table, size)
        with atomic_file(place) as stream:
            write_parquet(stream, _with_vectors(beside, X, steer))
    else:
        _write(place, (steer(X[i : i + size]) for i in range(0, len(X), size)), steer.applied, COLUMN)
    return steer.applied, f"{_POOLED[pooled]} of each text at {site} of {name}"


_POOLED = {"last": "the last token", "cls": "the first token", "mean": "the mean over the tokens"}


class _Steer:
    """Steers blocks of rows in their order, and counts what it did."""

    def __init__(self, placement: Placement, source: str, labels: Any, n: int, d: int, dtype: str) -> None:
        function, strength = placement.function, placement.strength
        self.applied = Applied(n, d, dtype if dtype in KEPT else _made(dtype))
        self._function = function if strength == 1 else function.interpolate(strength)
        self._idle = strength == 0
        self._labels = None if labels is None else _as_classes(function, labels, source)
        self._source, self._at = source, 0

    def __call__(self, X: Rows) -> Rows:
        """Return steered rows in the number format that is written; bfloat16 as float32."""
        X = X.astype(X.dtype.newbyteorder("="), copy=False)
        first, self._at = self._at, self._at + len(X)
        if X.dtype.kind == "f" and not np.isfinite(X).all():
            row = first + int(np.argwhere(~np.isfinite(X))[0][0])
            raise DataError(f"{self._source} has NaN, infinity or an empty cell in row {row}. Repair or drop that row.")
        concept = None if self._labels is None else self._labels[first : self._at]
        Y = self._rounded(self._function(X, concept))
        with np.errstate(over="ignore"):
            H = X.astype(np.float64)
            self.applied.moved += float(np.linalg.norm(Y - H, axis=1).sum())
            self.applied.length += float(np.linalg.norm(H, axis=1).sum())
        self.applied.steered += 0.0 if self._idle else self._selected(X, concept)
        return Y

    def _rounded(self, Y: Rows) -> Rows:
        with np.errstate(over="ignore"):
            kept = (
                widened(narrowed(Y)) if self.applied.dtype == "bfloat16" else Y.astype(self.applied.dtype, copy=False)
            )
        if not np.isfinite(kept).all():
            raise NonFiniteError(
                f"A steered vector of {self._source} is beyond {self.applied.dtype}: it reaches {np.abs(Y).max():.3g}. "
                "Lower the strength, or store the vectors in a wider number format."
            )
        return kept

    def _selected(self, X: Rows, concept: Any) -> float:
        return float(self._function.weights(X, concept).sum())


def _made(dtype: str) -> str:
    return str(output_dtype(np.empty(0, dtype)))


def _block(d: int) -> int:
    return max(1, BLOCK // (8 * d))


def _place(out: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str] | None]) -> Path:
    place = check_output(out, inputs=inputs)
    if place.suffix.lower() not in VECTORS:
        raise ParameterError(f"{out} ends in '{place.suffix}'; vectors are written to {', '.join(VECTORS)}.")
    return place


def _write(place: Path, blocks: Iterator[Rows], done: Applied, name: str, *, beside: Path | None = None) -> None:
    """Write blocks in the format that the ending of ``place`` names; only safetensors hold bfloat16."""
    shape, ending = (done.rows, done.features), place.suffix.lower()
    if ending != ".safetensors" and done.dtype == "bfloat16":
        done.dtype = "float32"  # before the first block is steered
    with atomic_file(place) as stream:
        if ending == ".npy":
            write_npy(stream, blocks, shape, done.dtype)
        elif ending == ".safetensors":
            write_safetensors(stream, blocks, shape, done.dtype, name, beside)
        else:
            write_parquet(stream, (with_column(None, name, rows) for rows in blocks))


def _check_labels_wanted(function: rs.SteeringFunction, *, labelled: bool) -> None:
    if function.needs_labels and not labelled:
        raise OptionsError(
            "The gate of this steering reads labels, not vectors. Name their column with label_column=, or their file "
            "with labels=."
        )
    if labelled and EVERYBODY in function.maps:
        raise OptionsError("This steering has one map for every vector, which no label changes. Leave out the labels.")


def _stored_labels(path: Path, column: str | None, n: int) -> list[Any]:
    stored = stored_at(path, () if column is None else (column,), None, ndim=1)
    header = stored.header()
    if header.shape not in ((n,), (n, 1)):
        raise LabelError(f"{path} has labels of shape {header.shape} for {n} vectors. Each vector needs one label.")
    label_family(header.dtype, path)
    return [label for block in stored.blocks(n, 0, n) for label in block.reshape(len(block)).tolist()]


def _as_classes(function: rs.SteeringFunction, labels: list[Any], source: str) -> list[Any]:
    """Return the classes of the function that the labels stand for: "1" in a text file is the class 1."""
    check_labels(labels, len(labels), caller=source)
    classes = function.classes or tuple(label for label in function.maps if label is not None)
    by_name = {str(label): label for label in classes}
    return [label if label in classes else by_name.get(str(label), label) for label in labels]


def _steered_table(file: Path, columns: tuple[str, ...], label_column: str | None, steer: _Steer) -> Iterator[Any]:
    size, width = _block(steer.applied.features), steer.applied.features
    for batch in _whole_table(file, size):
        names = vector_columns(batch.schema, columns, label_column, file)
        yield replaced(batch, names, steer(vectors(batch, names, file, width=width)))


def _with_vectors(batches: Iterable[Any], X: NDArray[np.float32], steer: _Steer) -> Iterator[Any]:
    at = 0
    for batch in batches:
        yield with_column(batch, COLUMN, steer(X[at : at + batch.num_rows]))
        at += batch.num_rows


def _whole_table(file: Path, size: int) -> Iterator[Any]:
    with open_table(file) as table:
        yield from table.batches(table.schema.names, size, 0, table.rows)


def _text_batches(rows: Sequence[Numbered], size: int) -> Iterator[Any]:
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    for i in range(0, len(rows), size):
        some = [row for _, row in rows[i : i + size]]
        yield text_batch({name: [_cell(row.get(name)) for row in some] for name in names})


def _cell(value: Any) -> str | None:
    return None if value is None else str(value)
