"""What the package imports is installed by its core, or by the extra that an error names."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from repsurgery.extras import extra_of, requirements
from tests.lm.test_import import BLOCKED

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "repsurgery"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
TASKS = ("lm", "serve", "studies", "scale")
ROOMS = {
    **{"cli": "cli", "lm": "lm", "serve": "serve", "tuning": "lm", "workflows": "lm", "scorers": "lm"},
    **{"pictures": "report", "studies/common": "lm", "studies/harness": "evaluation", "studies/toxicity": "lm"},
    **{"scale/engines": "lm", "scale/models/class_moments.py": "lm", "scale/models/ray_actors.py": "distributed"},
}
"""The extra of imports that have no error of their own: something that is always used before them has one."""


def packages_of(lines):
    """Return the packages that requirements name, those of this package's own extras included."""
    found = set()
    for requirement in map(Requirement, lines):
        own = requirement.name == "repsurgery"
        found |= packages_of(line for e in requirement.extras for line in EXTRAS[e]) if own else {requirement.name}
    return {canonicalize_name(name) for name in found}


CORE = packages_of(PROJECT["dependencies"])


@cache
def distributions():
    return packages_distributions()


def is_third_party(module):
    return module != "repsurgery" and module not in sys.stdlib_module_names


def modules_of(node):
    """Return the third-party modules that a statement imports, or a call of `needed` by name."""
    names = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.level == 0:
        names = [node.module]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "needed":
        names = [node.args[0].value]
    return {name.partition(".")[0] for name in names if is_third_party(name.partition(".")[0])}


def extras_in(text):
    return {extra for names in re.findall(r"repsurgery\[([\w,]+)\]", text) for extra in names.split(",")}


def guarded(tree):
    """Return the extras that the error of each import names, by the identity of its statement."""
    found = {}
    for attempt in (node for node in ast.walk(tree) if isinstance(node, ast.Try)):
        handlers = "\n".join(map(ast.unparse, attempt.handlers))
        if "MissingExtraError" in handlers:
            extras = extras_in(handlers) or extras_in(ast.unparse(tree))
            found |= {id(node): extras for statement in attempt.body for node in ast.walk(statement)}
    return found


def imports():
    """Yield the file, the module and the extras of every import of a package outside the core."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        named = guarded(tree)
        for node in ast.walk(tree):
            for module in modules_of(node):
                if not CORE & {canonicalize_name(name) for name in distributions().get(module, [module])}:
                    needed = {"data"} if isinstance(node, ast.Call) else None  # what `formats.stored.needed` names
                    yield path.relative_to(SOURCE).as_posix(), module, needed or named.get(id(node))


def room_of(path):
    (extra,) = {extra for room, extra in ROOMS.items() if path == room or path.startswith(f"{room}/")}
    return {extra}


FOUND = sorted({(module, extra) for path, module, extras in imports() for extra in extras or room_of(path)})


@pytest.mark.parametrize(("module", "extra"), FOUND)
def test_every_import_is_covered_by_the_extra_that_its_error_names(module, extra):
    installed_by = {canonicalize_name(name) for name in distributions()[module]}
    assert installed_by & (CORE | packages_of(EXTRAS[extra])), f"repsurgery[{extra}] does not install {module}"


def test_the_scan_sees_imports_of_every_kind():
    """Counter-check: at the top, in a function, by name, behind an error of its own, and behind a room's."""
    assert {("torch", "lm"), ("h5py", "scorers"), ("zarr", "data"), ("profanity_check", "scorers")} <= set(FOUND)
    assert {("fastapi", "serve"), ("typer", "cli"), ("faiss", "rivals"), ("tqdm", "cli"), ("tqdm", "lm")} <= set(FOUND)
    assert not packages_of(EXTRAS["cli"]) & {"torch", "h5py"}
    assert not {"torch", "rich", "pydantic"} & CORE


def test_all_is_all_and_tasks_include_what_their_commands_need():
    everything = {package for extra in EXTRAS for package in packages_of(EXTRAS[extra])}
    assert packages_of(EXTRAS["all"]) == everything
    assert packages_of(line for task in TASKS for line in EXTRAS[task]) == everything
    for task in TASKS:
        assert packages_of(EXTRAS["cli"]) <= packages_of(EXTRAS[task])
    demonstration = packages_of(EXTRAS["lm"])
    assert {"optuna", "jinja2", "matplotlib", "gguf"} <= demonstration
    assert not demonstration & {
        "ray",
        "dask",
        "distributed",
        "lm-eval",
        "faiss-cpu",
        "pyarrow",
        "datasets",
        "fairlearn",
    }


def test_extras_named_in_errors_and_guides_exist():
    texts = [*SOURCE.rglob("*.py"), ROOT / "README.md", ROOT / "Makefile", *(ROOT / "docs").rglob("*.md")]
    named = {extra for path in texts for extra in extras_in(path.read_text())}
    assert {"lm", "cli", "scorers", "data", "serve"} <= named <= EXTRAS.keys()


def test_the_guide_lists_every_extra_with_what_it_is_part_of():
    rows = re.findall(
        r"^\| `(\w+)` \|.*\| (.+) \|$", (ROOT / "docs" / "guide" / "install.md").read_text(), re.MULTILINE
    )
    assert [extra for extra, _ in rows] == list(dict.fromkeys(extra for extra, _ in rows))
    assert {extra for extra, _ in rows} == EXTRAS.keys()
    for extra, last in rows[len(TASKS) + 1 :]:
        whole = [task for task in TASKS if packages_of(EXTRAS[extra]) <= packages_of(EXTRAS[task])]
        assert re.findall(r"`(\w+)`", last) == whole, extra


def test_the_metadata_says_what_the_project_states():
    """The installed package was built from this pyproject.toml; ``make test`` installs it again after a change."""
    assert requirements() == {"": CORE, **{extra: packages_of(lines) for extra, lines in EXTRAS.items()}}


@pytest.mark.parametrize(
    ("package", "extra"), [("torch", "lm"), ("lm_eval", "evaluation"), ("faiss.cpu", "rivals"), ("nobody", None)]
)
def test_the_smallest_extra_that_installs_a_package(package, extra):
    assert extra_of(package) == extra


@pytest.mark.parametrize(
    ("missing", "words", "extra"),
    [
        ("torch", ("generate", "x.safetensors"), "lm"),
        ("torch", ("compare-scorers", "x.csv"), "lm"),
        ("psutil", ("plan", "--model", "smollm2-135m"), "lm"),
        ("platformdirs", ("tune", "courtesy", "--prompts", "provoking", "--out", "x.safetensors"), "lm"),
        ("torch", ("tune", "courtesy", "--prompts", "provoking", "--out", "x.safetensors"), "lm"),
        ("uvicorn", ("serve",), "serve"),
    ],
)
def test_a_command_names_the_extra_that_it_lacks(missing, words, extra, tmp_path):
    code = f"sys.argv = ['repsurgery', *{words!r}]\nfrom repsurgery.cli import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED.format(missing=[missing]) + code],
        **{"capture_output": True, "text": True, "check": False, "cwd": tmp_path},
    )
    assert done.returncode == 1 and f"pip install 'repsurgery[{extra}]'" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and not list(tmp_path.iterdir())
