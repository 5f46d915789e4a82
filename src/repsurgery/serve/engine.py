"""The engine: one thread that writes all running choices together, a token of each at every step."""

import logging
import threading
import time
from collections import deque
from typing import Any

import torch

from repsurgery.lm.generate.generate import end_tokens
from repsurgery.lm.generate.row_decoder import RowDecoder
from repsurgery.serve.job import Job
from repsurgery.serve.limits import Limits
from repsurgery.serve.metrics import Metrics
from repsurgery.serve.refusals import Refusal, failed, stopping
from repsurgery.serve.row import Row, next_tokens

__all__ = ["Engine"]

log = logging.getLogger(__name__)
JOIN_TOKENS = 4096
"""Padded prompt tokens that are read in one pass, unless a single prompt is longer."""


_OVERFLOW = "The steering made the model overflow: its logits are NaN or infinite. Lower the strength."
FAILING = 3
"""Passes that fail one after the other, after which the engine is said to be failing."""


class Engine:
    """Continuous batching: rows join between two steps, and leave as soon as they have ended.

    Parameters
    ----------
    model, tokenizer
    limits : Limits
    metrics : Metrics

    Guarantees
    ----------
    What a row writes does not depend on the rows beside it (test_requests_equal_generate_whatever_runs_beside_them).
    A request whose client is gone holds its rows for at most one more step (test_a_disconnect_frees_its_rows).
    A failure of the model ends the requests of that batch, and later ones are served
    (test_a_failing_pass_ends_its_requests_and_no_others).
    A row whose logits overflow ends its own request only (test_logits_that_overflow_end_their_own_request_only).
    """

    def __init__(self, model: Any, tokenizer: Any, limits: Limits, metrics: Metrics) -> None:
        self._model, self._tokenizer, self._limits, self._metrics = model, tokenizer, limits, metrics
        RowDecoder(model, tokenizer)  # raises an error now where the model cannot be decoded so
        self._ends = frozenset(end_tokens(model, tokenizer))
        self._changed = threading.Condition()
        self._waiting: deque[Row] = deque()
        self._running: list[Row] = []
        self._closed = False
        self._stopped = False
        self._failed = 0
        self._thread = threading.Thread(target=self._work, name="repsurgery-engine", daemon=True)
        metrics.watch(lambda: len(self._waiting), lambda: len(self._running))

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Let the rows of ``job`` wait for the batch, or raise a `Refusal`: too many wait, or the server stops."""
        rows = [Row(job, spec, self._tokenizer, self._ends) for spec in job.specs]
        most = self._limits.max_queue
        with self._changed:
            if self._closed:
                raise stopping()
            self._waiting = deque(row for row in self._waiting if not row.ended)
            if len(self._waiting) + len(rows) > most:
                raise Refusal(
                    429,
                    f"{len(self._waiting)} choices wait already, and at most {most} may. Try again later.",
                    kind="rate_limit_error",
                    code="queue_full",
                    retry_after=1,
                )
            self._waiting.extend(rows)
            self._changed.notify()

    @property
    def busy(self) -> bool:
        """Whether any request waits or runs."""
        with self._changed:
            return any(not row.ended for row in (*self._waiting, *self._running))

    @property
    def failing(self) -> bool:
        """Whether the last passes of the model have all failed; requests are still tried."""
        return self._failed >= FAILING

    def close(self) -> None:
        """Refuse new requests; those that were accepted go on."""
        with self._changed:
            self._closed = True

    def stop(self, *, seconds: float = 5.0) -> None:
        """End every request with an event that says so, and end the thread."""
        self.close()
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(seconds)
        self._stop_all()

    def _work(self) -> None:
        while not self._stopped:
            try:
                with torch.inference_mode(), RowDecoder(self._model, self._tokenizer) as decoder:
                    while self._round(decoder):
                        pass
            except Exception:  # the server outlives any failure of the model
                self._note_failure()
                log.exception("A pass of the model failed; the requests in it are ended, and the batch begins anew.")
                with self._changed:
                    rows, self._running = self._running, []
                for row in rows:
                    row.job.fail(failed())
                if not rows:
                    time.sleep(1)  # nothing was running, so it may fail again at once
        self._stop_all()

    def _note_failure(self) -> None:
        self._failed += 1
        self._metrics.failed_pass()

    def _stop_all(self) -> None:
        with self._changed:
            rows = [*self._waiting, *self._running]
            self._waiting.clear()
        for row in rows:
            row.job.fail(stopping())

    def _round(self, decoder: RowDecoder) -> bool:
        """Let rows leave and join, and take one step; return whether to go on."""
        self._leave(decoder)
        joining = self._admitted(decoder)
        if joining is None:
            return False
        if joining:
            self._join(decoder, joining)
            self._leave(decoder)
        if self._running:
            logits = decoder.step([row.token for row in self._running])
            self._advance(self._running, logits, dict(decoder.failures))
        return True

    def _leave(self, decoder: RowDecoder) -> None:
        """Let the rows leave that have ended, or whose time is over."""
        now, seconds = time.monotonic(), self._limits.request_seconds
        with self._changed:
            late = [row for row in (*self._waiting, *self._running) if now > row.job.deadline]
        for row in late:
            row.job.fail(Refusal(504, f"The request took longer than {seconds:g} seconds.", code="timeout"))
        # looked at once, because a client may leave at any moment
        gone = {i for i, row in enumerate(self._running) if row.ended}
        if gone:
            decoder.leave(gone)
            self._running = [row for i, row in enumerate(self._running) if i not in gone]

    def _admitted(self, decoder: RowDecoder) -> list[Row] | None:
        """Return the rows that join now, the longest waiting first, or None to stop; wait if there is nothing to do."""
        with self._changed:
            while True:
                self._waiting = deque(row for row in self._waiting if not row.ended)
                if self._stopped:
                    return None
                if self._running or self._waiting:
                    break
                self._changed.wait()
            if self._running and not decoder.joinable:
                return []
            rows: list[Row] = []
            longest = 0
            while self._waiting and len(self._running) + len(rows) < self._limits.max_batch:
                longest = max(longest, len(self._waiting[0].spec.prompt))
                if rows and longest * (len(rows) + 1) > JOIN_TOKENS:
                    break
                rows.append(self._waiting.popleft())
            return rows

    def _join(self, decoder: RowDecoder, rows: list[Row]) -> None:
        before = len(decoder)
        try:
            specs = [row.spec for row in rows]
            turns = [spec.turns for spec in specs]
            logits = decoder.join([spec.prompt for spec in specs], [spec.plan for spec in specs], turns=turns)
        except Exception:
            if len(decoder) == before:
                self._note_failure()
            for row in rows:
                row.job.fail(failed())
            if len(decoder) != before:
                raise
            log.exception("New rows could not join the batch; their requests are ended.")
            return
        self._running = [*self._running, *rows]
        failures = {i - before: reason for i, reason in decoder.failures.items() if i >= before}
        self._advance(rows, logits, failures)

    def _advance(self, rows: list[Row], logits: torch.Tensor, failures: dict[int, str]) -> None:
        # the largest logit is NaN or infinite where any is, except for tokens that cannot occur
        finite = logits.amax(dim=-1).isfinite()
        overflown = [] if finite.all() else (~finite).nonzero()[:, 0].tolist()
        steered = {i: _OVERFLOW for i in overflown if rows[i].spec.plan.parts}
        for i, reason in (steered | failures).items():
            rows[i].job.fail(Refusal(400, reason, param="steering", code="steering_not_finite"))
        broken = [i for i in overflown if i not in steered]
        if broken:
            log.error("The model gave logits that are NaN or infinite to %d rows without steering.", len(broken))
            self._note_failure()
        for i in broken:
            rows[i].job.fail(failed())
        if overflown:
            logits = logits.masked_fill(~finite[:, None], 0.0)
        tokens = next_tokens(rows, logits)
        if not broken:
            self._failed = 0
        for row, token, scores in zip(rows, tokens, logits, strict=True):
            if row.job.ended:
                continue
            self._metrics.token(row.job.first_token())
            row.take(token, scores)
