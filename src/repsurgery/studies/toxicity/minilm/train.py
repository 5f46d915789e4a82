"""`train_minilm`: train adapters and head on soft labels, epoch by epoch, and write them as one small file."""

import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from repsurgery.checkpoint import keyed_folder, recall
from repsurgery.files import Contents, read_file, write_file
from repsurgery.progress import progress_bar
from repsurgery.scorers.adapted import logits_of, read_encoder, well_formed
from repsurgery.scorers.minilm import ENCODER_DIGEST, KIND, encoder_folder, fingerprints
from repsurgery.studies.common.adam_state import adam_arrays, restore_adam
from repsurgery.studies.toxicity.minilm.adapters import adapt, stored_arrays
from repsurgery.studies.toxicity.minilm.rows import ScorerRows

__all__ = ["Recipe", "train_minilm"]

_EPOCH = "minilm-epoch"
_GRADIENT_NORM = 1.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the scorer is trained.

    Attributes
    ----------
    rank : int
        The rank of each adapter.
    hidden : int
        The width of the head's hidden layer.
    max_tokens : int
        The number of tokens that are read from the beginning of each text.
    epochs, comment_epochs, batch_size : int
        The comments take part in the first ``comment_epochs`` of all ``epochs``: they are long, and on another scale.
    learning_rate, weight_decay, warmup : float
        Of AdamW; the rate rises linearly over the share ``warmup`` of all steps, and falls as a cosine to zero.
    seed : int
    """

    rank: int = 16
    hidden: int = 64
    max_tokens: int = 64
    epochs: int = 5
    comment_epochs: int = 2
    batch_size: int = 32
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    warmup: float = 0.06
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _Examples:
    """Token ids, labels in [0, 1] and the number of the output that learns each label."""

    ids: list[list[int]]
    labels: torch.Tensor
    outputs: torch.Tensor

    def batches(self, recipe: Recipe, epoch: int) -> list[NDArray[np.intp]]:
        """Return the batches of an epoch in a seeded order; texts of similar length share a batch."""
        rng = np.random.default_rng([recipe.seed, epoch])
        rows = np.arange(len(self.ids)) if epoch < recipe.comment_epochs else np.flatnonzero(self.outputs.numpy() == 0)
        lengths = np.array([len(self.ids[i]) for i in rows])
        # the noise changes from epoch to epoch which texts share a batch
        order = rows[np.argsort(lengths + rng.uniform(0, 4, len(rows)), kind="stable")]
        batches = np.split(order, range(recipe.batch_size, len(order), recipe.batch_size))
        return [batches[i] for i in rng.permutation(len(batches))]


def train_minilm(
    rows: ScorerRows,
    out: str | os.PathLike[str],
    *,
    recipe: Recipe | None = None,
    version: str = "1",
    work_dir: str | os.PathLike[str],
    folder: Path | None = None,
    progress: bool = True,
) -> Path:
    """Train the adapters and the head of `scorers.MiniLMScorer`, and write them to ``out``.

    The loss is the cross-entropy with soft labels. Perspective scores and Jigsaw's labels have an output of the head
    each, because they are on different scales; the first one is the score.

    Parameters
    ----------
    rows : ScorerRows
        Only ``archived`` and ``comments`` are trained on.
    out : path
        The file to write.
    recipe : Recipe or None
    version : str
        The version that the scorer will state.
    work_dir : path
        Finished epochs are stored here; running the same training again resumes after the last one.
    folder : path or None
        The folder of the encoder; None stands for the one in its wheel.
    progress : bool

    Guarantees
    ----------
    * An interrupted training that is resumed writes the same contents as one that was not interrupted
      (test_a_resumed_training_writes_the_same_file).
    """
    recipe = recipe or Recipe()
    facts = {"recipe": asdict(recipe), "rows": rows.digests(), "counts": rows.counts(), "encoder": ENCODER_DIGEST}
    store = keyed_folder(Path(work_dir), facts)
    with torch.random.fork_rng():  # the caller's random numbers stay as they were
        torch.manual_seed(recipe.seed)
        network, tokenizer = read_encoder(folder or encoder_folder())
        head = adapt(network, rank=recipe.rank, hidden=recipe.hidden, outputs=2)
        _Training(network, head, _examples(rows, tokenizer, recipe), recipe, store).run(progress=progress)
    used = fingerprints([*rows.archived, *rows.comments, *rows.validation])
    arrays = {**stored_arrays(network, head), "rows": np.sort(used)}
    write_file(out, Contents(KIND, {"version": version, "max_tokens": recipe.max_tokens, **facts}, arrays))
    return Path(out)


def _examples(rows: ScorerRows, tokenizer: Any, recipe: Recipe) -> _Examples:
    texts, labels = [*rows.archived, *rows.comments], [*rows.archived.values(), *rows.comments.values()]
    outputs = np.repeat([0, 1], [len(rows.archived), len(rows.comments)])
    ids = tokenizer([well_formed(text) for text in texts], truncation=True, max_length=recipe.max_tokens)["input_ids"]
    return _Examples(ids, torch.tensor(labels, dtype=torch.float32), torch.from_numpy(outputs))


class _Training:
    """The parameters, their optimiser, and the folder of finished epochs."""

    def __init__(self, network: Any, head: Any, examples: _Examples, recipe: Recipe, store: Path) -> None:
        self.network, self.head, self.examples, self.recipe, self.store = network, head, examples, recipe, store
        named = {f"network.{name}": p for name, p in network.named_parameters() if p.requires_grad}
        self.parameters = named | {f"head.{name}": p for name, p in head.named_parameters()}
        self.optimiser = torch.optim.AdamW(
            self.parameters.values(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
        )

    def run(self, *, progress: bool) -> None:
        """Train all epochs that are not in the folder yet, and return in evaluation mode."""
        epochs = [self.examples.batches(self.recipe, epoch) for epoch in range(self.recipe.epochs)]
        ends = np.cumsum([len(batches) for batches in epochs])
        first = self._resume()
        done = ends[first - 1] if first else 0
        with progress_bar("batches", int(ends[-1]), show=progress, done=int(done)) as advance:
            for epoch in range(first, self.recipe.epochs):
                shares = (ends[epoch] - len(epochs[epoch]) + np.arange(len(epochs[epoch]))) / ends[-1]
                self._epoch(epoch, epochs[epoch], shares.tolist(), advance)
                write_file(
                    self._file(epoch), Contents(_EPOCH, {"epoch": epoch}, adam_arrays(self.parameters, self.optimiser))
                )
        self.network.eval()

    def _epoch(
        self,
        epoch: int,
        batches: list[NDArray[np.intp]],
        shares: list[float],
        advance: Callable[[int], None],
    ) -> None:
        """Take one step per batch; ``shares`` says which share of all steps comes before each."""
        # seeded by the epoch, so that a resumed training draws the same dropout
        torch.manual_seed(int(np.random.SeedSequence([self.recipe.seed, epoch]).generate_state(1)[0]))
        self.network.train()
        for batch, share in zip(batches, shares, strict=True):
            rate = self.recipe.learning_rate * _rate(share, self.recipe.warmup)
            for group in self.optimiser.param_groups:
                group["lr"] = rate
            logits = logits_of(self.network, self.head, [self.examples.ids[i] for i in batch])
            chosen = logits.gather(1, self.examples.outputs[batch, None])[:, 0]
            loss = nn.functional.binary_cross_entropy_with_logits(chosen, self.examples.labels[batch])
            self.optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
            nn.utils.clip_grad_norm_(self.parameters.values(), _GRADIENT_NORM)
            self.optimiser.step()
            advance(1)

    def _file(self, epoch: int) -> Path:
        return self.store / f"epoch-{epoch}.safetensors"

    def _resume(self) -> int:
        """Restore the last sound epoch, and return the number of finished epochs."""
        for epoch in reversed(range(self.recipe.epochs)):
            contents, _ = recall(self._file(epoch), lambda path: read_file(path, kind=_EPOCH))
            if contents is not None:
                restore_adam(self.parameters, self.optimiser, contents.arrays)
                return epoch + 1
        return 0


def _rate(share: float, warmup: float) -> float:
    """Return the factor of the learning rate after ``share`` of all steps: a linear rise, then half a cosine."""
    return min(1.0, share / warmup if warmup else 1.0) * (1 + math.cos(math.pi * share)) / 2
