"""Work that survives an interruption: what identifies a job, and files that are there whole or not at all."""

import hashlib
import json
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

from repsurgery.lm.sites import unwrapped
from repsurgery.lm.watch import steering_in_force

__all__ = ["SAVE_SECONDS", "fingerprint", "folder_of", "uninterrupted"]

SAVE_SECONDS = 30.0
"""Save so often at least; an interruption saves at once, and only a killed process can lose this much."""


def folder_of(
    work_dir: str | Path | None, model: nn.Module, texts: Sequence[str], settings: Mapping[str, Any]
) -> Path | None:
    """Return the folder of exactly this job under ``work_dir``, made if need be; None without a work folder.

    Its name is a digest of texts, settings, model and whatever steers the model now, so another job can never
    take over these results.
    """
    if work_dir is None:
        return None
    sha = hashlib.sha256(json.dumps([list(texts), dict(settings)], sort_keys=True).encode())
    sha.update(json.dumps(steering_in_force(unwrapped(model))).encode())
    sha.update(fingerprint(model))
    folder = Path(work_dir) / f"{settings['job']}-{sha.hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def fingerprint(model: nn.Module) -> bytes:
    """Return a digest of a few numbers of every parameter: it tells models apart at a cost that does not grow."""
    sha = hashlib.sha256()
    for name, parameter in unwrapped(model).named_parameters():
        flat = parameter.detach().reshape(-1)
        picked = flat[:: max(1, flat.numel() // 16)].to(torch.float64).cpu().numpy()
        sha.update(f"{name}|{tuple(parameter.shape)}|{parameter.dtype}|".encode())
        sha.update(picked.tobytes())
    return sha.digest()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back until the block is done, so that no result is half taken in."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[tuple[int, FrameType | None]] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: waiting.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if waiting and callable(before):
            before(*waiting[0])
