import subprocess
import sys

from repsurgery import lm

BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {missing!r}:
            raise ImportError(name)
sys.meta_path.insert(0, Block())
"""


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_the_package_does_not_import_torch():
    found = run("import sys, repsurgery; assert 'torch' not in sys.modules and 'transformers' not in sys.modules")
    assert found.returncode == 0, found.stderr


def test_a_missing_library_names_the_extra():
    for missing in ("torch", "transformers"):
        found = run(BLOCKED.format(missing=[missing]) + "from repsurgery import lm")
        assert found.returncode == 1
        assert "MissingExtraError" in found.stderr and "pip install 'repsurgery[lm]'" in found.stderr


def test_public_names_are_sorted_and_there():
    assert lm.__all__ == sorted(lm.__all__)
    assert all(hasattr(lm, name) for name in lm.__all__)
