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
from repsurgery import baselines, classifiers, datasets, distributed, lm, metrics, scorers, sources, tuning
from tests.lm.test_import import BLOCKED

ROOT = Path(__file__).parents[2]
MODULES = sorted(m.name for m in pkgutil.walk_packages(rs.__path__, "repsurgery.") if not m.name.endswith("__main__"))
TESTS = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
DOCS = "\n".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def test_importing_the_package_needs_no_framework():
    names = ", ".join(f"repsurgery.{room}" for room in CORE[1:])
    script = f"import sys, {names}; print(sorted({{m.split('.')[0] for m in sys.modules}}))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    for name in ("numpy", "scipy", "sklearn", "torch", "transformers", "typer", "ray", "dask", "zarr", "datasets"):
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
    "tuning": tuning,
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


def docstrings():
    """Yield the name and docstring of every class, method and function of the package."""
    for module in MODULES:
        for name, value in vars(importlib.import_module(module)).items():
            if getattr(value, "__module__", None) != module or not (inspect.isclass(value) or inspect.isroutine(value)):
                continue
            yield f"{module}.{name}", inspect.getdoc(value) or ""
            for attribute, member in vars(value).items() if inspect.isclass(value) else ():
                if isinstance(getattr(member, "__doc__", None), str) and not attribute.startswith("__"):
                    yield f"{module}.{name}.{attribute}", inspect.cleandoc(member.__doc__)


def guarantees():
    for name, text in docstrings():
        for section in re.findall(
            r"^Guarantees\n-+\n(.*?)(?=\n\n[A-Z]\w+\n-+\n|\Z)", text, flags=re.DOTALL | re.MULTILINE
        ):
            yield pytest.param(section, id=name)


@pytest.mark.parametrize("section", list(guarantees()))
def test_every_guarantee_names_a_test_that_exists(section):
    for sentence in re.split(r"\.\s+(?=[A-Z*`])", section):
        assert re.search(r"\([^()]*(?:test_\w+|benchmarks/\w+\.py)[^()]*\)", sentence), f"untested: {sentence}"
    for named in re.findall(r"\btest_\w+", section):
        assert f"def {named}(" in TESTS, f"{named} is promised in a docstring and does not exist"
    for script in re.findall(r"benchmarks/\w+\.py", section):
        assert (ROOT / script).is_file()


def test_functions_and_classes_state_guarantees():
    named = {parameter.id.rpartition(".")[2] for parameter in guarantees()}
    assert {"verify", "read_file", "paired_bootstrap", "generate", "MiMiC", "Moments"} <= named
    assert len(named) >= 50


def test_every_test_named_in_a_docstring_exists():
    for name, text in docstrings():
        for tests in re.findall(r"\((test_\w+(?:,\s+test_\w+)*)\)", text):
            for test in re.split(r",\s+", tests):
                assert f"def {test}(" in TESTS, f"{name} names {test}, which does not exist"


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_documents_that_code_and_tests_cite_exist():
    known = {path.name for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]} | {
        "report.md"
    }  # written by us
    made_up = ROOT / "tests" / "docs" / "test_site.py"  # whose links are examples of links
    for path in {*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")} - {made_up}:
        cited = set(re.findall(r"([\w-]+\.md)\b(?!\.jinja)", path.read_text()))
        assert cited <= known, f"{path} cites {cited - known}"


def blocks():
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        code = re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL)
        if code:
            yield pytest.param("\n".join(code), id=str(path.relative_to(ROOT).with_suffix("")))


@pytest.mark.parametrize("code", list(blocks()))
def test_documentation_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "documentation", "exec"), {"__name__": "__documentation__"})


def test_the_version_is_one():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"] and "version" not in project["project"]
    assert project["tool"]["hatch"]["version"] == {"path": "src/repsurgery/__init__.py"}
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert f"## [{rs.__version__}]" in changes or "## [Unreleased]" in changes
