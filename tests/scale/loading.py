"""Models as actors load them: tiny, written down pass by pass, and deadly where they are told to be."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Logged:
    """Loads a tiny model whose every pass leaves a line with the process that made it."""

    log: Path

    def __call__(self):
        from tests.lm.tiny_models import tiny_model, tiny_tokenizer

        model = tiny_model("llama")
        model.model.register_forward_pre_hook(lambda module, args: self.note())
        return model, tiny_tokenizer()

    def note(self):
        with self.log.open("a") as log:
            log.write(f"{os.getpid()}\n")

    def passes(self):
        return self.log.read_text().split() if self.log.exists() else []


@dataclass(frozen=True)
class Deadly(Logged):
    """Kills its process at the passes of these numbers, counted over all processes; never the test itself."""

    deaths: tuple[int, ...]
    driver: int

    def note(self):
        super().note()
        if len(self.passes()) in self.deaths and os.getpid() != self.driver:
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class NeverLoaded:
    """Kills every process that loads it."""

    driver: int

    def __call__(self):
        assert os.getpid() != self.driver
        os.kill(os.getpid(), signal.SIGKILL)
