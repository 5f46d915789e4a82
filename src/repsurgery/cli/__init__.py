"""Commands: parse, call one public function, show."""

import contextlib
import os
import signal
import sys

from repsurgery.errors import MissingExtraError

__all__ = ["INTERRUPTED", "main"]

INTERRUPTED = 128 + signal.SIGINT
"""What the shell expects of a program that Ctrl-C ended."""


def main() -> None:
    """Run the command line; say what to install where a part of it is missing.

    Guarantees
    ----------
    Ctrl-C ends with 130 and one line, whatever is at work (test_ctrl_c_is_one_line_and_130).
    A closed pipe ends without a word (test_a_closed_pipe_ends_without_a_word).
    """
    try:
        from repsurgery.cli.app import app

        app()
    except MissingExtraError as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.stderr.write("Stopped.\n")
        _leave(INTERRUPTED)
    except BrokenPipeError:
        _leave(1)
    except SystemExit as ending:
        if ending.code == INTERRUPTED:
            _leave(INTERRUPTED)
        raise


def _leave(code: int) -> None:
    """End at once: threads at work must neither be waited for nor meet an interpreter that is being taken down."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
