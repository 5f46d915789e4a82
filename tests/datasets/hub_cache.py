"""Datasets in the layout of the hub's own cache, read by a process of its own that never asks the network."""

import os
import subprocess
import sys

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def write_snapshot(cache, repository, files, *, commit=COMMIT):
    root = cache / ("datasets--" + repository.replace("/", "--"))
    for name, content in files.items():
        path = root / "snapshots" / commit / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(commit)


def run_offline(script, cache):
    """Run ``script`` without ``$REPSURGERY_DATA``, with ``cache`` as the hub's cache, offline."""
    settings = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(cache), "HF_HOME": str(cache), "REPSURGERY_DATA": ""}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
