"""Public names are documented, guarantees name real tests, and importing stays light."""

import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import repsurgery as rs
from repsurgery import baselines, classifiers, datasets, distributed, lm, metrics, scorers, sources
from tests.lm.test_import import BLOCKED

ROOT = Path(__file__).parents[2]
MODULES = sorted(m.name for m in pkgutil.walk_packages(rs.__path__, "repsurgery.") if not m.name.endswith("__main__"))
TESTS = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
DOCS = "\n".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def test_importing_the_package_needs_no_framework():
    names = "repsurgery, repsurgery.sources, repsurgery.distributed"
    script = f"import sys, {names}; print(sorted({{m.split('.')[0] for m in sys.modules}}))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    for name in ("torch", "transformers", "typer", "ray", "dask", "zarr", "datasets"):
        assert f"'{name}'" not in loaded


EXTRAS = ("torch", "transformers", "pydantic", "jinja2", "typer", "rich", "platformdirs", "filelock", "tqdm", "pandas")
EXTRAS += ("matplotlib", "pyarrow", "zarr", "ray", "dask", "distributed", "fairlearn", "lm_eval", "huggingface_hub")
CORE = (
    "repsurgery",
    "affine",
    "moments",
    "gates",
    "certificates",
    "steering",
    "datasets",
    "metrics",
    "scorers",
    "scale",
)
CORE += ("baselines", "classifiers", "sources", "distributed")


@pytest.mark.parametrize("room", CORE)
def test_a_core_install_has_every_public_name(room):
    path = room if room == "repsurgery" else f"repsurgery.{room}"
    code = f"import {path} as room\nfor name in room.__all__: getattr(room, name)"
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED.format(missing=EXTRAS) + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_wheel_holds_the_stubs_that_lazy_imports_read():
    packages = [
        path.parent for path in (ROOT / "src").rglob("__init__.py") if "attach_stub(__name__" in path.read_text()
    ]
    assert len(packages) > 10
    assert all((package / "__init__.pyi").is_file() for package in packages)
    # hatch packs every file below the package's folder that version control does not ignore
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"] == {"packages": ["src/repsurgery"]}
    assert build.keys() == {"targets"}
    assert ".pyi" not in (ROOT / ".gitignore").read_text()


ROOMS = {
    "repsurgery": rs,
    "lm": lm,
    "datasets": datasets,
    "scorers": scorers,
    "sources": sources,
    "distributed": distributed,
    "metrics": metrics,
    "baselines": baselines,
    "classifiers": classifiers,
}


@pytest.mark.parametrize(("room", "name"), [(room, name) for room, module in ROOMS.items() for name in module.__all__])
def test_every_public_name_is_documented(room, name):
    assert getattr(ROOMS[room], name).__doc__
    assert re.search(rf"\b{name}\b", DOCS), f"{name} is not mentioned in README.md or docs/"


@pytest.mark.parametrize("name", MODULES)
def test_public_lists_are_true(name):
    module = importlib.import_module(name)
    listed = getattr(module, "__all__", [])
    assert all(hasattr(module, item) for item in listed)
    assert len(set(listed)) == len(listed)


def guarantees():
    for name in MODULES:
        for _, cls in inspect.getmembers(importlib.import_module(name), inspect.isclass):
            if cls.__module__ == name and "Guarantees\n" in (cls.__doc__ or ""):
                section = cls.__doc__.split("Guarantees\n")[1].split("\n\n    Examples")[0]
                yield pytest.param(section, id=cls.__name__)


@pytest.mark.parametrize("section", list(guarantees()))
def test_every_guarantee_names_a_test_that_exists(section):
    sentences = re.findall(r"\(([^()]*(?:test_|benchmarks/)[^()]*)\)", section)
    assert sentences
    for named in re.findall(r"test_\w+", section):
        assert f"def {named}(" in TESTS, f"{named} is promised in a docstring and does not exist"
    for script in re.findall(r"benchmarks/\w+\.py", section):
        assert (ROOT / script).is_file()


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def blocks():
    for path in [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]:
        code = re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL)
        if code:
            yield pytest.param("\n".join(code), id=path.stem)


@pytest.mark.parametrize("code", list(blocks()))
def test_documentation_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "documentation", "exec"), {"__name__": "__documentation__"})


def test_the_version_is_one():
    text = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{rs.__version__}"' in text
    assert (
        f"## [{rs.__version__}]" in (ROOT / "CHANGELOG.md").read_text()
        or "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text()
    )
