"""``python -m repsurgery``: the command line."""

from repsurgery.cli import main

if __name__ == "__main__":
    main()
