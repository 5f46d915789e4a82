"""Shards that misbehave where they are told to, in whatever process reads them."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from repsurgery.scale import Shard


@dataclass(frozen=True)
class Wrapped(Shard):
    """A shard that is another one, for engines and for the work folder alike."""

    inner: Shard
    log: Path

    @property
    def name(self):
        return self.inner.name

    def schema(self):
        return self.inner.schema()

    def fingerprint(self):
        return self.inner.fingerprint()

    def stamp(self):
        return self.inner.stamp()

    def batches(self, rows):
        with self.log.open("a") as log:
            log.write(f"{self.name}\n")
        yield from self.inner.batches(rows)

    def times_read(self):
        return self.log.read_text().splitlines().count(self.name) if self.log.exists() else 0


@dataclass(frozen=True)
class Dying(Wrapped):
    """Kills its worker after the first batch, the first ``deaths`` times it is read; never the test itself."""

    driver: int
    deaths: int = 1

    def batches(self, rows):
        for i, batch in enumerate(super().batches(rows)):
            if i == 1 and self.times_read() <= self.deaths and os.getpid() != self.driver:
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch


@dataclass(frozen=True)
class Waiting(Wrapped):
    """Does not go on before a file is there."""

    gate: Path

    def batches(self, rows):
        for _ in range(600):
            if self.gate.exists():
                break
            time.sleep(0.1)
        yield from super().batches(rows)
