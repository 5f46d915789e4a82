"""What users and outside programs rely on: names, flags, errors, records, reported numbers, files and documents.

``python -m tests.contract.snapshot`` writes ``snapshot.json`` anew, after a change that is meant and announced. It adds
the files that `saved.FROZEN` names and that are missing; a kept file is never written anew.
"""

import hashlib
import importlib
import inspect
import json
import re
import tempfile
from pathlib import Path

from repsurgery import errors

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("snapshot.json")
PATHS = (
    "repsurgery",
    "repsurgery.baselines",
    "repsurgery.classifiers",
    "repsurgery.datasets",
    "repsurgery.distributed",
    "repsurgery.experiments.harness",
    "repsurgery.experiments.toxicity",
    "repsurgery.lm",
    "repsurgery.metrics",
    "repsurgery.report",
    "repsurgery.scorers",
    "repsurgery.sources",
    "repsurgery.tuning",
)
RESULTS = ROOT / "experiments" / "results"


def names():
    return {path: sorted(importlib.import_module(path).__all__) for path in PATHS}


def flags():
    """Return, for every command, its parameters with their spellings, whether they are required, and their defaults."""
    from typer.main import get_command

    from repsurgery.cli.app import app

    def described(command):
        return {p.name: [*p.opts, *p.secondary_opts, p.required, str(p.default)] for p in command.params}

    group = get_command(app)
    verbs = {name: group.get_command(None, name) for name in group.list_commands(None)}
    return {"repsurgery": described(group)} | {name: described(verb) for name, verb in verbs.items()}


def error_types():
    found = inspect.getmembers(errors, inspect.isclass)
    return {
        name: [base.__name__ for base in kind.__mro__[1:-1]]
        for name, kind in found
        if kind.__module__ == errors.__name__
    }


def records():
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(RESULTS.glob("*.json"))}


def reported_numbers():
    """Return the digest of every number in the tables of the report on the committed records, in order."""
    from repsurgery.studies.page import write_study_report
    from repsurgery.studies.records import read_records

    with tempfile.TemporaryDirectory() as folder:
        write_study_report(read_records([RESULTS]), folder)
        lines = (Path(folder) / "report.md").read_text().splitlines()
    rows = [re.findall(r"[-−+]?\d*\.?\d+(?:e[-+]?\d+)?", line) for line in lines if line.startswith("|")]
    tokens = [token for row in rows for token in row]
    return {"count": len(tokens), "digest": hashlib.sha256(" ".join(tokens).encode()).hexdigest()}


def take():
    from tests.contract import documents, saved

    return {
        "names": names(),
        "flags": flags(),
        "errors": error_types(),
        "records": records(),
        "reported": reported_numbers(),
        "files": saved.take(),
        "documents": documents.take(),
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(take(), indent=1, sort_keys=True) + "\n")
