"""The code that a guide gives to extend the library passes the checks that the library's own files pass."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "guide" / "extending.md").read_text(), re.M | re.S)
DEFINITIONS = [block for block in BLOCKS if re.search(r"^(class|def) ", block, re.M)]
UNANNOTATED = "def half(x):\n    return x / 2\n"


def checks(*command):
    return subprocess.run([sys.executable, "-m", *map(str, command)], cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return the folder of a file for each block that defines something, as a reader would save it."""
    folder = tmp_path_factory.mktemp("guide")
    for i, block in enumerate(DEFINITIONS):
        (folder / f"block_{i}.py").write_text(f'"""A file of the guide."""\n\n{block}')
    return folder


def test_the_guide_shows_a_method_two_gates_a_shrinkage_a_scorer_and_a_rival():
    assert len(DEFINITIONS) == 6


def test_code_of_the_guide_is_formatted_and_linted_as_ours(files):
    config = ("--config", ROOT / "pyproject.toml", "--no-cache")
    for command in (("ruff", "format", "--check", *config), ("ruff", "check", *config, "--ignore", "INP001")):
        done = checks(*command, files)
        assert done.returncode == 0, done.stdout + done.stderr


def test_code_of_the_guide_has_the_types_that_strict_checks_ask_for(files, tmp_path):
    done = checks("mypy", "--config-file", ROOT / "pyproject.toml", *sorted(files.glob("*.py")))
    own = [line for line in done.stdout.splitlines() if line.startswith(str(files)) or "block_" in line]
    assert done.returncode in (0, 1) and not own, done.stdout + done.stderr


def test_the_checks_see_code_without_annotations(tmp_path):
    # the counter-check
    (tmp_path / "block_0.py").write_text(f'"""A file."""\n\n{UNANNOTATED}')
    config = ROOT / "pyproject.toml"
    assert "ANN001" in checks("ruff", "check", "--no-cache", "--config", config, tmp_path).stdout
    assert "no-untyped-def" in checks("mypy", "--config-file", config, tmp_path / "block_0.py").stdout
