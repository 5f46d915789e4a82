"""The largest memory that was in use since a moment, where the system tells."""

import contextlib
import gc
import sys
from pathlib import Path

import torch

__all__ = ["peak_memory", "reset_peak_memory"]

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak_memory(device: torch.device) -> None:
    """Begin to observe; on systems without such a reset, the peak is that since the process began."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with contextlib.suppress(OSError):
        _CLEAR.write_text("5")  # Linux: the high-water mark falls to what is resident now


def peak_memory(device: torch.device) -> int | None:
    """Return the bytes allocated on a CUDA device at most, otherwise those of this process in memory; None: unknown."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        lines = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
        return 1024 * int(lines["VmHWM"].split()[0])
    except (OSError, KeyError, ValueError):
        return _largest_resident()


def _largest_resident() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    # macOS counts bytes, other systems kibibytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
