"""Class moments of hidden states at many sites, from one pass over the texts."""

import os
import time
import warnings
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from repsurgery.arrays import Label, check_groups, check_labels
from repsurgery.checkpoint import SAVE_SECONDS, recall, uninterrupted
from repsurgery.errors import CacheWarning, ParameterError, ShapeError, SurgeryError
from repsurgery.files import Contents, built_from, read_file, write_file
from repsurgery.lm.batching.tokens import check_texts, encode
from repsurgery.lm.chat import Conversation
from repsurgery.lm.read.resuming import Results, folder_of, read_missing
from repsurgery.lm.read.states import Pooling, check_pooling, reader, row_counts, turns_to_read
from repsurgery.lm.read.text_groups import TextGroups
from repsurgery.moments import ClassMoments, Moments
from repsurgery.moments.moments import Precision

__all__ = ["check_sites", "class_moments"]

KIND = "class-moments-progress"
SAVING_SHARE = 0.05
"""The largest share of the time that saving takes, approximately, however large the moments."""


def class_moments(
    model: nn.Module,
    tokenizer: Any,
    texts: Sequence[str | Conversation],
    labels: Sequence[Label],
    *,
    sites: Sequence[str],
    pooling: Pooling = "last",
    max_length: int | None = None,
    batch_size: int = 32,
    precision: Precision = "float64",
    progress: bool = True,
    work_dir: str | os.PathLike[str] | None = None,
    groups: Sequence[Hashable] | None = None,
) -> dict[str, ClassMoments]:
    """Return, per site, the moments of the texts' hidden states by class, from which every estimator can be fitted.

    Parameters
    ----------
    model, tokenizer
        A transformers decoder or encoder and its tokenizer; neither is changed.
    texts : sequence of n strings or conversations
        See `extract`.
    labels : sequence of n labels
    sites : sequence of str
        All of them are read in the same pass; see `resolve_site`.
    pooling : {"last", "cls", "mean", "all"}
        One vector per text as in `extract`, or with ``"all"`` one per token, of a conversation that ends with
        the assistant's message one per token of the assistant's turns.
    max_length, batch_size, progress
        As in `extract`.
    precision : {"float64", "float32-products"}
        See `Moments`.
    work_dir : path or None
        Store the sums there; the same call resumes after an interruption and reads nothing twice. Finished work is
        identified by the content of texts, labels and model, see `lm.fingerprint`.
    groups : sequence of n hashable labels, or None
        Texts with the same label are not independent, such as the continuations of one prompt; see `ClassMoments.of`.
        None: each text is its own group, so that with ``pooling="all"`` the tokens of a text are one group.

    Returns
    -------
    dict of site name to ClassMoments

    Notes
    -----
    States are summed in blocks as they are computed; at most 2 d of them per site and class are in memory, which is
    O(d²) per site and class for any number of texts. With ``groups``, one mean (d,) is kept in addition for each group
    of which some texts have been read and others not yet.

    Guarantees
    ----------
    Equal to `ClassMoments.of` of the extracted rows, up to rounding (test_moments_are_those_of_the_extracted_rows).
    A changed model is read again (test_a_changed_model_gives_its_own_moments).
    An interruption loses nothing (test_interrupted_moments_go_on_where_they_stopped).
    The groups are those of the extracted rows (test_groups_of_texts_are_those_of_the_extracted_rows).
    """
    texts = check_texts(texts, caller="class_moments", tokenizer=tokenizer)
    classes, codes = check_labels(labels, len(texts), caller="class_moments")
    check_pooling(pooling)
    names = check_sites(sites)
    tokens = encode(model, tokenizer, texts, max_length=max_length, caller="class_moments")
    settings: dict[str, Any] = {
        **{"job": "class-moments", "sites": names, "pooling": pooling, "tokens": tokens},
        **{"classes": classes, "codes": codes.tolist(), "precision": precision},
    }
    turns = turns_to_read(tokenizer, texts, tokens, pooling)
    settings |= {} if turns is None else {"turns": turns}
    counts = row_counts(tokens, turns, pooling)
    by_group = check_groups(groups, len(texts), caller="class_moments")
    if by_group is None and pooling == "all":
        by_group = np.arange(len(texts))
    if by_group is not None:
        settings["groups"] = by_group.tolist()
    held = None if by_group is None else TextGroups(names, codes, by_group)
    sums = _Sums(names, classes, precision, len(texts), folder_of(work_dir, model, texts, settings), held)

    def add(batch: list[int], states: dict[str, NDArray[np.float32]]) -> None:
        sizes = [counts[i] for i in batch]
        sums.take(batch, np.repeat(codes[batch], sizes), states, sizes)

    with reader(model, tokenizer, names, pooling) as read:
        options: dict[str, Any] = {"batch_size": batch_size, "progress": progress, "label": "reading"}
        read_missing(sums, add, model, read, tokens, turns=turns, **options)
    return sums.moments()


def check_sites(sites: Sequence[str], *, caller: str = "class_moments") -> list[str]:
    """Return the names without duplicates, or raise an error that shows how to give them."""
    if isinstance(sites, str) or not sites:
        raise ParameterError(f"{caller} got sites={sites!r}; it takes a list such as ['final', 'layers.3'].")
    return list(dict.fromkeys(sites))


class _Sums(Results):
    """Moments per site and class, fed row by row and multiplied block by block."""

    def __init__(
        self,
        sites: list[str],
        classes: list[Label],
        precision: Precision,
        n: int,
        folder: Path | None,
        groups: TextGroups | None = None,
    ) -> None:
        super().__init__(n)
        self._sites, self._classes, self._precision, self._folder = sites, classes, precision, folder
        self._groups = groups
        self._sums: dict[tuple[str, int], Moments] = {}
        self._rows: dict[tuple[str, int], list[NDArray[np.float32]]] = {}
        self._saved = 0
        self._torn = False
        self._save_at = time.monotonic() + SAVE_SECONDS
        if folder is not None:
            progress, damage = recall(folder / "progress.safetensors", self._load)
            if progress is not None:
                self._done, self._sums, self._groups = progress
                self._saved = int(self._done.sum())
            elif damage is not None:
                warnings.warn(f"The texts are read anew: {damage}", CacheWarning, stacklevel=3)

    def take(
        self,
        index: list[int],
        codes: NDArray[np.intp],
        states: dict[str, NDArray[np.float32]],
        sizes: Sequence[int] = (),
    ) -> None:
        """Add the texts at ``index``, whose rows at each site have class ``codes``; text i has ``sizes[i]`` rows."""
        if self._torn:
            raise SurgeryError(
                "An earlier batch was added at some sites only (see the error before this one). Start the call again; "
                "with a work_dir it resumes from the last save."
            )
        self._torn = True
        for site, rows in states.items():
            for code in np.unique(codes).tolist():
                self._rows.setdefault((site, code), []).append(rows[codes == code])
                self._flush(site, code)
        if self._groups is not None:
            self._groups.take(index, sizes, states)
        self._done[index] = True
        self._torn = False
        if self._folder is not None and time.monotonic() > self._save_at:
            self.save()

    def _flush(self, site: str, code: int, *, everything: bool = False) -> None:
        parts = self._rows[site, code]
        n, d = sum(map(len, parts)), parts[0].shape[1]
        if not everything and n < 2 * d:
            return
        rows = np.concatenate(parts)
        # d rows are left over, so that the last block too is one product rather than a factorisation
        cut = len(rows) if everything else len(rows) - d
        added = Moments.of_rows(rows, np.arange(cut), None, self._precision)
        before = self._sums.get((site, code))
        self._sums[site, code] = added if before is None else before + added
        self._rows[site, code] = [rows[cut:].copy()] if cut < len(rows) else []
        if not self._rows[site, code]:
            del self._rows[site, code]

    def moments(self) -> dict[str, ClassMoments]:
        """Return everything added so far."""
        for site, code in list(self._rows):
            self._flush(site, code, everything=True)
        return {site: self._at(site) for site in self._sites}

    def _at(self, site: str) -> ClassMoments:
        known = {code: label for code, label in enumerate(self._classes) if (site, code) in self._sums}
        groups = {code: None if self._groups is None else self._groups.groups_at(site, code) for code in known}
        return ClassMoments({label: self._sums[site, code].with_groups(groups[code]) for code, label in known.items()})

    def save(self) -> None:
        """Write the sums of each site, then the record that makes them valid, then delete the older ones."""
        if self._folder is None or self._torn or int(self._done.sum()) == self._saved:
            return
        with uninterrupted():
            start = time.monotonic()
            count = int(self._done.sum())
            for i, moments in enumerate(self.moments().values()):
                moments.save(self._folder / f"site-{i}-{count}.safetensors")
            arrays = {"done": self._done, **({} if self._groups is None else self._groups.arrays())}
            write_file(self._folder / "progress.safetensors", Contents(KIND, {"count": count}, arrays))
            for i in range(len(self._sites)):
                (self._folder / f"site-{i}-{self._saved}.safetensors").unlink(missing_ok=True)
            self._saved = count
            now = time.monotonic()
            self._save_at = now + max(SAVE_SECONDS, (now - start) / SAVING_SHARE)

    def _load(self, path: Path) -> tuple[NDArray[np.bool_], dict[tuple[str, int], Moments], TextGroups | None]:
        """Return which texts are done, their sums and groups, or raise a `FileFormatError` or `FileNotFoundError`."""
        progress = read_file(path, kind=KIND)
        with built_from("the progress of these texts"):
            done = np.array(progress.arrays["done"])
            if done.dtype != np.bool_ or done.shape != self._done.shape or done.sum() != progress.header["count"]:
                raise ShapeError(f"It counts {done.shape} texts, and there are {self._done.shape}.")
            arrays = {name: array for name, array in progress.arrays.items() if name != "done"}
            groups = None if self._groups is None else self._groups.restored(done, arrays)
        sites = [
            ClassMoments.load(path.with_name(f"site-{i}-{done.sum()}.safetensors")) for i in range(len(self._sites))
        ]
        sums = {
            (site, code): moments[label].with_groups(None)  # `TextGroups` holds them
            for site, moments in zip(self._sites, sites, strict=True)
            for code, label in enumerate(self._classes)
            if label in moments
        }
        return done, sums, groups
