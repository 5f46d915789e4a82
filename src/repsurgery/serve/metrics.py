"""What a server counts, for Prometheus, in a registry of its own."""

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["Metrics"]

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Metrics:
    """Requests, tokens, queue, batch, time to the first token, and how often each steering is used."""

    def __init__(self) -> None:
        self._registry = own = CollectorRegistry()
        name = "repsurgery_"
        self._requests = Counter(f"{name}requests", "Requests by path and status.", ["path", "status"], registry=own)
        self._prompt = Counter(f"{name}prompt_tokens", "Tokens of prompts that were accepted.", registry=own)
        self._drawn = Counter(f"{name}generated_tokens", "Tokens that were generated.", registry=own)
        self._failed = Counter(f"{name}failed_passes", "Passes of the model that failed.", registry=own)
        self._queue = Gauge(f"{name}queue_rows", "Choices that wait for room in the batch.", registry=own)
        self._batch = Gauge(f"{name}batch_rows", "Choices that are being generated.", registry=own)
        self._first = Histogram(
            f"{name}time_to_first_token_seconds", "From arrival to the first token.", buckets=_SECONDS, registry=own
        )
        self._steered = Counter(
            f"{name}steered_requests", "Accepted requests by steering; empty for the base.", ["steering"], registry=own
        )

    def watch(self, queue: Callable[[], int], batch: Callable[[], int]) -> None:
        """Read the queue and the batch from these functions."""
        self._queue.set_function(queue)
        self._batch.set_function(batch)

    def request(self, path: str, status: int) -> None:
        """Count an answered request."""
        self._requests.labels(path, str(status)).inc()

    def accepted(self, steerings: Sequence[str], prompt_tokens: int) -> None:
        """Count a request that begins."""
        self._prompt.inc(prompt_tokens)
        for steering in steerings or ("",):
            self._steered.labels(steering).inc()

    def failed_pass(self) -> None:
        """Count a failed pass of the model."""
        self._failed.inc()

    def token(self, first: float | None) -> None:
        """Count a token, and the time to it if it is the first of its request."""
        self._drawn.inc()
        if first is not None:
            self._first.observe(first)

    def text(self) -> bytes:
        """Return everything in the text format of Prometheus."""
        return generate_latest(self._registry)
