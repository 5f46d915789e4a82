"""One choice while it is written: the next token, its text, its scores, and when it ends."""

from collections.abc import Collection, Sequence
from typing import Any

import torch

from repsurgery.lm.generate.sampling import draw
from repsurgery.serve.job import Job, Piece, RowSpec, TokenScore
from repsurgery.serve.text import GrowingText, Stops

__all__ = ["Row", "next_tokens"]

LEAST = -9999.0
"""The log-probability that is reported of what cannot occur."""


class Row:
    """A choice of a job in the batch.

    Parameters
    ----------
    job : Job
    spec : RowSpec
    tokenizer
    ends : collection of int
        The tokens that end a text of this model.
    """

    def __init__(self, job: Job, spec: RowSpec, tokenizer: Any, ends: Collection[int]) -> None:
        self.job, self.spec = job, spec
        self.token = -1
        self.drawn = 0
        self.finish: str | None = None
        self._tokenizer, self._ends = tokenizer, ends
        self._current = ""
        self._text = GrowingText(tokenizer, spec.prompt)
        self._stops = Stops(spec.stops)
        self._shown = ""
        self._reported = 0
        self._scores: list[TokenScore] = []

    @property
    def ended(self) -> bool:
        """Whether it needs no further token."""
        return self.finish is not None or self.job.ended

    def take(self, token: int, logits: torch.Tensor) -> None:
        """Continue with ``token``, which was drawn from ``logits`` (vocabulary,), and report to the job."""
        self.token = token
        self.drawn += 1
        if token in self._ends:
            self.finish = "stop"
        else:
            before = len(self._current)
            self._text.append(token)
            self._current = self._text.stable()
            if self.spec.alternatives is not None:
                self._scores.append(self._scored(token, logits, before, len(self._current)))
            if self.drawn == self.spec.max_tokens:
                self.finish = "length"
        self._report()

    def _report(self) -> None:
        last = self.finish is not None
        released, stopped = self._stops.cut(self._text.final() if last else self._current, final=last)
        self.finish = "stop" if stopped else self.finish
        over = self.finish is not None
        if not over and not (self.job.stream and len(released) > len(self._shown)):
            return
        gained, self._shown = released[len(self._shown) :], released
        # where a stop was found, nothing is told of the tokens that reach into it, or are part of its first character
        count = sum((over and not stopped) or score.start < len(released) >= score.end for score in self._scores)
        ready, self._scores = self._scores[:count], self._scores[count:]
        tokens, self._reported = self.drawn - self._reported, self.drawn
        self.job.put(Piece(self.spec.index, gained, tokens, tuple(ready), self.finish))

    def _scored(self, token: int, logits: torch.Tensor, start: int, end: int) -> TokenScore:
        # JSON has no infinity
        logprobs = torch.log_softmax(logits, dim=-1).nan_to_num(nan=LEAST, neginf=LEAST)
        best = logprobs.topk(self.spec.alternatives or 0)
        top = tuple((self._word(i), p) for i, p in zip(best.indices.tolist(), best.values.tolist(), strict=True))
        return TokenScore(self._word(token), float(logprobs[token]), top, start, end)

    def _word(self, token: int) -> str:
        """Return what ``token`` adds to a text: as the second of two, since decoders may drop the first one's space."""
        once, twice = (str(self._tokenizer.decode([token] * times)) for times in (1, 2))
        return twice[len(once) :] if twice.startswith(once) else once


def next_tokens(rows: Sequence[Row], logits: torch.Tensor) -> list[int]:
    """Return the token that each row draws from its logits (n, vocabulary): greedily, or with the noise of its key.

    Guarantees
    ----------
    A row with a seed draws what `lm.generate` draws with it (test_requests_equal_generate_whatever_runs_beside_them).
    """
    tokens = logits.argmax(dim=-1)
    warm = [i for i, row in enumerate(rows) if row.spec.temperature > 0]
    if warm:
        specs = [rows[i].spec for i in warm]
        tokens[warm] = draw(
            logits[warm],
            [spec.key for spec in specs],
            [rows[i].drawn for i in warm],
            top_p=[spec.top_p for spec in specs],
            temperature=[spec.temperature for spec in specs],
        )
    drawn: list[int] = tokens.tolist()
    return drawn
