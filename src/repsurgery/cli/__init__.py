"""The command line. Each verb parses its arguments, calls public functions and prints the result."""

import contextlib
import os
import signal
import sys

from repsurgery.errors import MissingExtraError

__all__ = ["INTERRUPTED", "main"]

INTERRUPTED = 128 + signal.SIGINT
"""The exit code that shells expect of a program stopped by Ctrl-C."""


def main() -> None:
    """Run the command line. A missing dependency is reported with the extra to install.

    Guarantees
    ----------
    Ctrl-C prints one line and exits with 130 at any time (test_ctrl_c_is_one_line_and_130).
    A closed pipe ends the command silently (test_a_closed_pipe_ends_without_a_word).
    """
    try:
        from repsurgery.cli.app import app

        app(prog_name="repsurgery")
    except MissingExtraError as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.stderr.write("Stopped.\n")
        _exit(INTERRUPTED)
    except BrokenPipeError:
        _exit(1)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            _exit(INTERRUPTED)
        raise


def _exit(code: int) -> None:
    """Exit at once: do not wait for running threads, and do not let them run while the interpreter shuts down."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
