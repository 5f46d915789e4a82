import subprocess
import sys
from pathlib import Path

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


def test_a_function_is_never_hidden_by_the_package_of_its_name():
    """`lm.steer` and its like are functions, whichever module was imported first."""
    room = Path(lm.__file__).parent
    names = sorted(set(lm.__all__) & {path.parent.name for path in room.glob("*/__init__.py")})
    assert names == ["fold", "generate", "load", "price", "steer"]
    modules = [f"repsurgery.lm.{name}.{path.stem}" for name in names for path in room.glob(f"{name}/[a-z]*.py")]
    assert len(modules) > 2 * len(names)
    outcome = run(FIRST.format(packages=[f"repsurgery.lm.{name}" for name in names], modules=modules, names=names))
    assert outcome.returncode == 0, outcome.stderr


FIRST = """
import importlib, inspect, sys
for first in {packages!r} + {modules!r}:
    for name in [name for name in sys.modules if name.split(".")[0] == "repsurgery"]:
        del sys.modules[name]
    importlib.import_module(first)
    from repsurgery import lm
    assert all(inspect.isfunction(getattr(lm, name)) for name in {names!r}), first
"""


def test_public_names_are_sorted_and_there():
    assert lm.__all__ == sorted(lm.__all__)
    assert all(hasattr(lm, name) for name in lm.__all__)
