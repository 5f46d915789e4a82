"""`Rival`: a text generator that decodes token by token with the study's model, and may train parts beforehand."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from repsurgery.checkpoint import digest
from repsurgery.files import Contents
from repsurgery.lm.batching.batches import entry_device, evaluating, map_batches
from repsurgery.lm.batching.tokens import Tokens, check_texts, encode, pad_id
from repsurgery.lm.generate.generate import continuation_text, end_tokens, until_end
from repsurgery.lm.generate.sampling import sample_key
from repsurgery.studies.toxicity.decoding.cached_model import CachedModel
from repsurgery.studies.toxicity.decoding.parts import Part, known_part, make_part, part_path
from repsurgery.studies.toxicity.decoding.sampler import Decoder, sample
from repsurgery.studies.toxicity.generators import MOST_SAMPLES, Continuation, Cost, TextGenerator

__all__ = ["Rival"]

LAYOUT = 1
"""Raised when the same recipe gives other parts, so that parts of an older layout are not used."""


class Rival(TextGenerator):
    """A method in one file: it overrides `decoder`, or `applied`, and `parts` if it trains anything.

    Attributes
    ----------
    needs : str
        What the method needs beside the model, in a few words.
    changes_model : bool
        Whether the method is the study's model under `applied`, so that documents have a likelihood under it.
    batch_size : int
        Continuations that are written at once.

    Guarantees
    ----------
    A continuation depends on its prompt and seed alone (test_a_rival_writes_the_same_in_any_batch).
    The noise is that of steering, so that rows of a table are paired (test_a_plain_rival_is_the_base).
    """

    needs: ClassVar[str] = ""
    changes_model: ClassVar[bool] = False
    batch_size: ClassVar[int] = 100

    @property
    def model(self) -> Any:
        """The study's model."""
        return self.context.model

    @property
    def tokenizer(self) -> Any:
        """The study's tokenizer."""
        return self.context.tokenizer

    @property
    def top_p(self) -> float:
        """The nucleus from which the loop draws; 1 where `decoder` removes tokens itself."""
        return self.context.spec.top_p

    @property
    def extra_passes(self) -> float:
        """Forward passes of one row for each new token, beyond the one that every token takes."""
        return 0.0

    def decoder(self) -> Decoder:
        """Return a fresh decoder for one batch."""
        return CachedModel(self.model)

    def applied(self) -> AbstractContextManager[Any]:
        """Return a context in which the study's model is changed, by hooks for example."""
        return nullcontext()

    def parts(self) -> Mapping[str, Part]:
        """Return what is trained or collected beforehand, by name."""
        return {}

    def encode(self, prompts: Sequence[str]) -> list[Tokens]:
        """Return the tokens that are read before each continuation."""
        return self.encoded(prompts)

    def encoded(
        self, prompts: Sequence[str], *, before: str = "", special_tokens: bool = True, room: int = 0
    ) -> list[Tokens]:
        """Return the tokens of ``before`` and each prompt, with ``room`` for more than the continuation."""
        return encode(
            self.model,
            self.tokenizer,
            [before + prompt for prompt in prompts],
            max_length=None,
            room=self.context.spec.tokens + room,
            special_tokens=special_tokens,
            remedy=lambda i: f"Shorten or drop the prompt that begins with {prompts[i][:40]!r}.",
            caller=self.name,
        )

    def continued(self, rows: Sequence[Tokens], keys: Sequence[bytes]) -> list[Tokens]:
        """Return the tokens that continue each row, drawn with the noise of its key."""
        return self.drawn_by(self.decoder(), rows, keys)

    def drawn_by(self, decoder: Decoder, rows: Sequence[Tokens], keys: Sequence[bytes]) -> list[Tokens]:
        """Return the tokens that ``decoder`` draws after each row, under the study's sampling."""
        spec = self.context.spec
        return sample(
            decoder,
            rows,
            keys,
            tokens=spec.tokens,
            ends=self._ends,
            padding=pad_id(self.model, self.tokenizer),
            top_p=self.top_p,
            temperature=float(spec.temperature),
            device=entry_device(self.model),
        )

    def generate(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[list[Continuation]]:
        """Return one continuation of each prompt per seed."""
        prompts = check_texts(prompts, caller=self.name)
        rows = self.encode(prompts)
        self.prepare(progress=False)
        items = [(i, *divmod(seed, MOST_SAMPLES)) for i in range(len(prompts)) for seed in seeds]
        keys = [sample_key(seed, prompts[i], 0, number) for i, seed, number in items]

        def run(batch: list[int]) -> list[Continuation]:
            read = [rows[items[b][0]] for b in batch]
            new = self.continued(read, [keys[b] for b in batch])
            return [self._continuation(row, drawn) for row, drawn in zip(read, new, strict=True)]

        with evaluating(self.model), self.applied():
            lengths = [len(rows[i]) for i, *_ in items]
            drawn = map_batches(lengths, run, batch_size=self.batch_size, progress=False, label=self.name)
        written = sum(len(c.tokens) + c.finished for c in drawn)
        passes = self.extra_passes * written
        self.cost += Cost(tokens_read=sum(map(len, rows)), tokens_written=written, extra_passes=passes)
        return [drawn[i : i + len(seeds)] for i in range(0, len(drawn), len(seeds))]

    def count_passes(self, passes: float) -> None:
        """Note further forward passes, where `extra_passes` is not known beforehand."""
        self.cost += Cost(extra_passes=passes)

    @contextmanager
    def likelihood_model(self) -> Iterator[Any]:
        """Yield a model whose next-token distributions are those of this method; None if there is none."""
        if not self.changes_model:
            yield None
            return
        self.prepare(progress=False)
        with self.applied():
            yield self.model

    def prepare(self, *, progress: bool) -> None:
        """Make every part that is not stored yet."""
        for name in self.parts():
            if name not in self._made:
                self._made[name] = make_part(
                    self._folder, self.parts()[name], self.part_identity(name), progress=progress
                )

    def part(self, name: str) -> Contents:
        """Return a part, made now if it is not stored yet."""
        self.prepare(progress=False)
        return self._made[name]

    def known_parts(self) -> dict[str, Contents | None]:
        """Return the parts that are stored; None for those that are not."""
        return {
            name: self._made.get(name) or known_part(self._folder, self.part_identity(name)) for name in self.parts()
        }

    def part_path(self, name: str) -> Path:
        """Return the file in which a part is stored."""
        return part_path(self._folder, self.part_identity(name))

    @property
    def training_seconds(self) -> float | None:
        """The CPU seconds that all parts took; None while one is not made yet."""
        known = self.known_parts().values()
        return None if None in known else float(sum(part.header["seconds"] for part in known if part is not None))

    def part_facts(self) -> dict[str, dict[str, Any]]:
        """Return CPU seconds and bytes of every part that is stored."""
        known = {part.header["name"]: part.header for part in self.known_parts().values() if part is not None}
        return {name: {"training_seconds": h["seconds"], "bytes": h["bytes"]} for name, h in known.items()}

    @property
    def identity(self) -> Mapping[str, Any]:
        """Model, tokenizer, sampling, options, and what decides the parts."""
        parts = {name: digest(self.part_identity(name)) for name in self.parts()}
        return {**super().identity, "parts": parts}

    def part_identity(self, name: str) -> dict[str, Any]:
        """Return everything that decides a part."""
        spec, part = self.context.spec, self.parts()[name]
        own = {key: self.context.identity[key] for key in ("model", "tokenizer")}
        labels = {"source": spec.source, "target": spec.target, "max_length": spec.max_length, "seed": spec.seed}
        return {**own, **labels, "texts": self._texts, "part": part.name, "recipe": dict(part.recipe), "layout": LAYOUT}

    @cached_property
    def _made(self) -> dict[str, Contents]:
        return {}

    @cached_property
    def _texts(self) -> str:
        return digest(self.context.texts.fitted)

    @cached_property
    def _ends(self) -> list[int]:
        return end_tokens(self.model, self.tokenizer)

    @property
    def _folder(self) -> Path:
        return self.context.work / "rivals"

    def _continuation(self, row: Tokens, drawn: Tokens) -> Continuation:
        tokens, finished = until_end(drawn, self._ends)
        return Continuation(continuation_text(self.tokenizer, row, tokens), tuple(tokens), finished)
