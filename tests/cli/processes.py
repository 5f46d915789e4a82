"""Commands in processes of their own."""

import os
import subprocess
import sys

from tests.cli.test_endings import ROOT


def process(*words, hidden=(), base=os.environ, **variables):
    """Run a command as if the packages ``hidden`` were not installed; ``variables`` are added to those of ``base``."""
    code = f"""
import sys
from importlib import metadata
class Hidden:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden)
real = metadata.version
def version(name):
    if name.replace("-", "_") in {hidden!r}:
        raise metadata.PackageNotFoundError(name)
    return real(name)
metadata.version = version
from repsurgery.cli import main
main()
"""
    command = [sys.executable, "-c", code, *map(str, words)]
    environment = {**base, "PYTHONPATH": str(ROOT / "src"), **variables}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
