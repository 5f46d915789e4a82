"""``python -m repsurgery``: the demonstration of the README."""

from repsurgery.cli.guarantees import main

if __name__ == "__main__":
    main()
