"""`Datastore`: states of a model and the tokens that followed them, and the next-token distribution of the nearest."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from repsurgery.checkpoint import SAVE_SECONDS, recall, uninterrupted
from repsurgery.errors import DataError, MissingExtraError, NonFiniteError
from repsurgery.files import Contents, read_file, write_file
from repsurgery.lm.batching.batches import entry_device, evaluating, run_batches
from repsurgery.lm.batching.tokens import Tokens, encode, pad, pad_id
from repsurgery.lm.read.states import runner
from repsurgery.lm.sites.names import Site, last_mlp_input
from repsurgery.lm.sites.wrappers import unwrapped
from repsurgery.lm.steer.hooks import attach
from repsurgery.studies.toxicity.decoding.parts import Made, Workshop

__all__ = ["SEARCHES", "Datastore", "Search", "Tap", "collect", "make_store", "tapped"]

KIND = "datastore-state"
BATCH = 16
"""Texts of one pass."""
PROBES = 32
"""Clusters that faiss searches, as in the authors' code."""

Search = Callable[[torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]
"""Takes queries (n, d) and k; returns squared distances and indices of neighbours, both (n, k), nearest first.

An index of -1 means that there is no such neighbour."""


@dataclass(slots=True, eq=False)
class Tap:
    """The input of a model's last MLP in its last pass: ``state`` of shape (rows, length, d) or (rows · length, d)."""

    state: torch.Tensor

    def keys(self, rows: int) -> torch.Tensor:
        """Return the state as (rows, length, d), in float32."""
        return self.state.detach().reshape(rows, -1, self.state.shape[-1]).float()


@contextmanager
def tapped(site: Site) -> Iterator[Tap]:
    """Yield a `Tap` that holds the state at ``site`` after each pass inside the block."""
    tap = Tap(torch.empty(0))

    def visit(state: torch.Tensor) -> None:
        tap.state = state

    handle = attach(site, visit)
    try:
        yield tap
    finally:
        handle.remove()


def collect(
    model: Any, tokenizer: Any, texts: Sequence[str], *, tokens: int, max_length: int, workshop: Workshop, label: str
) -> Made:
    """Return the keys (m, d) and values (m,) of the first ``tokens`` tokens of ``texts`` that follow another token.

    A key is the input of the last MLP at a position, the value is the next token. Fewer than ``tokens`` are returned
    where the texts hold no more. Work is saved at least every 30 seconds, and an interrupted collection continues.

    Guarantees
    ----------
    An interruption at any moment leaves whole texts (test_an_interruption_between_two_lines_leaves_whole_texts).
    """
    rows = _pairs(model, tokenizer, texts, tokens, max_length, label)
    site, keys, done = last_mlp_input(model), *_resumed(workshop, rows, label)
    run, device, padding = runner(model, unwrapped(model), [site]), entry_device(model), pad_id(model, tokenizer)
    started, saved = time.process_time(), time.monotonic()

    def save() -> None:
        spent = workshop.seconds + time.process_time() - started
        header = {"texts": done + sum(map(len, finished)), "seconds": spent}
        write_file(workshop.state, Contents(KIND, header, {"keys": np.concatenate(keys)}))

    finished: list[list[int]] = []
    with evaluating(model), tapped(site) as tap:

        def read(batch: list[int]) -> None:
            nonlocal saved
            ids, mask = pad([rows[i] for i in batch], token=padding, side="right")
            run(input_ids=ids.to(device), attention_mask=mask.to(device))
            read_keys = tap.keys(len(batch))
            own = [k[: len(rows[i]) - 1] for k, i in zip(read_keys, batch, strict=True)]
            new = torch.cat(own).numpy(force=True)
            with uninterrupted():
                keys.append(new)
                finished.append(batch)
            if time.monotonic() - saved > SAVE_SECONDS:
                save()
                saved = time.monotonic()

        batches = [list(range(i, min(i + BATCH, len(rows)))) for i in range(done, len(rows), BATCH)]
        try:
            run_batches(batches, read, progress=workshop.progress, label=label, done=done)
        except KeyboardInterrupt:
            if keys:
                save()
            raise
    arrays = {"keys": np.concatenate(keys), "values": np.array([token for row in rows for token in row[1:]])}
    _check_pairs(len(arrays["keys"]), rows, label)
    if not np.isfinite(arrays["keys"].sum(dtype=np.float64)):
        raise NonFiniteError(f"{label}: the model's states hold NaN or infinity. Load the model in float32.")
    return {"tokens": len(arrays["values"]), "texts": len(rows), "site": site.path}, arrays


def _pairs(model: Any, tokenizer: Any, texts: Sequence[str], tokens: int, max_length: int, label: str) -> list[Tokens]:
    """Return the tokens of as many texts as hold ``tokens`` pairs of neighbours, the shortest text first."""
    rows: list[Tokens] = []
    missing = tokens
    for start in range(0, len(texts), 256):
        chunk = [text for text in texts[start : start + 256] if text.strip()]
        for row in encode(model, tokenizer, chunk, max_length=max_length, caller=label) if chunk else []:
            if missing > 0 and len(row) > 1:
                rows.append(row[: missing + 1])
                missing -= len(rows[-1]) - 1
        if missing <= 0:
            break
    if not rows:
        raise DataError(
            f"{label}: {len(texts)} texts and tokens={tokens} make an empty store. "
            "It needs at least one text with two tokens, and tokens=1 or more."
        )
    return sorted(rows, key=len)


def _resumed(workshop: Workshop, rows: list[Tokens], label: str) -> tuple[list[NDArray[np.float32]], int]:
    """Return the keys that an interrupted collection left, and the number of texts they came from."""
    contents, _ = recall(workshop.state, lambda path: read_file(path, kind=KIND))
    if contents is None:
        return [], 0
    keys, done = np.asarray(contents.arrays["keys"]), contents.header["texts"]
    _check_pairs(len(keys), rows[:done], f"{label}, continued from {workshop.state}")
    workshop.seconds += contents.header["seconds"]
    return [keys], done


def _check_pairs(keys: int, rows: list[Tokens], label: str) -> None:
    values = sum(len(row) - 1 for row in rows)
    if keys != values:
        raise DataError(
            f"{label}: there are {keys} keys for {values} next tokens of {len(rows)} texts, so that keys and tokens "
            "would not belong together. Delete the files of unfinished parts (*.unfinished) in the work folder, and "
            "run the same command again."
        )


@dataclass(frozen=True, slots=True, eq=False)
class Datastore:
    """Tokens by the state that came before them.

    Attributes
    ----------
    search : Search
        Among the m keys.
    values : (m,) tensor
        The token after each key.
    """

    search: Search
    values: torch.Tensor

    def log_probabilities(self, queries: torch.Tensor, *, k: int, temperature: float, vocabulary: int) -> torch.Tensor:
        """Return log P (n, vocabulary) of the next token after states (n, d), from the k nearest keys.

        A neighbour at squared distance d has weight softmax(-d / temperature). Tokens that no neighbour has get the
        smallest log-probability of those that some neighbour of the same row has.

        Guarantees
        ----------
        A row's result does not depend on the other rows (test_the_floor_of_a_row_is_its_own).
        """
        distances, neighbours = self.search(queries, min(k, len(self.values)))
        weights = torch.softmax((-distances / temperature).masked_fill(neighbours < 0, -torch.inf), dim=-1)
        p = torch.zeros(len(queries), vocabulary, device=queries.device)
        p.scatter_add_(1, self.values[neighbours.clamp(min=0)], weights)
        floor = torch.where(p > 0, p, torch.inf).amin(dim=-1, keepdim=True)
        return p.clamp_(min=floor).log_()


def exact_search(keys: torch.Tensor) -> Search:
    """Return a search that computes every distance by one product of matrices."""
    squares = keys.square().sum(dim=-1)

    def search(queries: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        distances = torch.addmm(squares[None], queries, keys.T, alpha=-2)
        nearest, index = distances.topk(k, dim=-1, largest=False)
        return (nearest + queries.square().sum(dim=-1, keepdim=True)).clamp_(min=0), index

    return search


def faiss_search(keys: torch.Tensor) -> Search:
    """Return a search by faiss: clusters of about 256 keys, at most 4096 of them, of which the nearest 32 are read."""
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError(
            "index=faiss needs faiss: pip install 'repsurgery[rivals]', or use index=exact"
        ) from error
    rows = keys.numpy(force=True)
    clusters = min(4096, max(1, len(rows) // 256))
    index: Any = faiss.index_factory(rows.shape[1], f"IVF{clusters},Flat")
    index.train(rows)
    index.add(rows)
    index.nprobe = PROBES

    def search(queries: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        distances, neighbours = index.search(queries.numpy(force=True), k)
        return torch.from_numpy(distances).to(queries.device), torch.from_numpy(neighbours).to(queries.device)

    return search


SEARCHES: dict[str, Callable[[torch.Tensor], Search]] = {"exact": exact_search, "faiss": faiss_search}
"""How neighbours are found, by name."""


def make_store(contents: Contents, *, index: str, device: torch.device) -> tuple[Datastore, torch.Tensor]:
    """Return a store of collected keys and values, and the keys (m, d); ``index`` is a key of `SEARCHES`."""
    keys = torch.from_numpy(np.array(contents.arrays["keys"])).to(device)
    values = torch.from_numpy(np.array(contents.arrays["values"])).to(device)
    return Datastore(SEARCHES[index](keys), values), keys
