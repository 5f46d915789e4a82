"""The real data, for tests that compare with published counts; skipped where it is not at hand."""

import os
from pathlib import Path

import pytest


def real_folder(*names):
    root = Path(os.environ.get("REPSURGERY_DATA") or "/nonexistent")
    for name in names:
        if not (root / name).is_dir():
            pytest.skip(f"REPSURGERY_DATA holds no folder {name}")
    return root / names[0]
