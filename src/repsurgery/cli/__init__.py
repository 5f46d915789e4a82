"""Commands: parse, call one public function, show."""

import sys

from repsurgery.errors import MissingExtraError

__all__ = ["main"]


def main() -> None:
    """Run the command line; say what to install where a part of it is missing."""
    try:
        from repsurgery.cli.app import app
    except MissingExtraError as error:
        sys.exit(f"Error: {error}")
    app()
