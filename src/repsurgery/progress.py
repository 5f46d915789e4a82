"""`progress_bar`: the progress of a long job, as a bar on a terminal or in a notebook, and as lines in a log."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from repsurgery.errors import MissingExtraError

__all__ = ["progress_bar", "silent_progress"]

LOG_SECONDS = 30.0
"""In a log, a line says this often how far the job is; a shorter job writes nothing there."""
_THEIR_SWITCHES = ("HF_HUB_DISABLE_PROGRESS_BARS", "TQDM_DISABLE")
"""What transformers, huggingface-hub and tqdm ask, when they are imported, about bars that others do not control."""
_silent = False


@contextmanager
def silent_progress(*, silent: bool = True) -> Iterator[None]:
    """Within the block no job shows its progress, whatever thread it runs in.

    Bars of libraries that are imported within the block are not shown either; nor are they in a log, where those
    libraries would write them as well.

    Parameters
    ----------
    silent : bool
        False: progress is shown as usual, on a terminal as bars.
    """
    global _silent
    before, theirs = _silent, {name: os.environ.get(name) for name in _THEIR_SWITCHES}
    _silent = _silent or silent
    if _silent or not sys.stderr.isatty():
        os.environ |= dict.fromkeys(_THEIR_SWITCHES, "1")
    try:
        yield
    finally:
        _silent = before
        for name, value in theirs.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def progress_bar(label: str, total: int, *, show: bool = True, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the number of items that were just finished.

    Parameters
    ----------
    label : str
        What is counted.
    total : int
        Items altogether.
    show : bool
        False: show nothing. So it is within `silent_progress`.
    done : int
        Items that an earlier run finished.

    Guarantees
    ----------
    Bars of jobs in several threads stand on lines of their own, and each leaves one line when it ends
    (test_two_jobs_at_once_have_a_line_each).
    """
    if not show or _silent:
        yield lambda items: None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise MissingExtraError(
            "A progress bar needs tqdm: pip install 'repsurgery[cli]' or 'repsurgery[lm]'"
        ) from error
    next_line = time.monotonic() + LOG_SECONDS
    # disable=None: no bar unless this is a terminal or a notebook
    with tqdm(total=total, initial=done, desc=label, disable=None) as bar:
        # tqdm leaves the last state of a bar where it stood, on top of whatever other bars draw there next
        on_terminal = not bar.disable and not bar.gui
        bar.leave = not on_terminal

        logged = False

        def log() -> None:
            nonlocal next_line, logged
            next_line, logged = time.monotonic() + LOG_SECONDS, True
            sys.stderr.write(f"{label}: {done} of {total}\n")

        def advance(items: int) -> None:
            nonlocal done
            with tqdm.get_lock():
                done += items
                bar.update(items)
                if bar.disable and time.monotonic() > next_line:
                    log()

        try:
            yield advance
            if logged:
                log()
        finally:
            if on_terminal:
                last = str(bar)
                bar.close()
                # the cleared bar may have left the cursor within its line
                tqdm.write(f"\r{last}", file=sys.stderr)
