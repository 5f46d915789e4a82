"""``doctor`` finds what breaks an installation, and nothing else."""

import json
from importlib import metadata

import pytest

from repsurgery.cli import checkup
from tests.cli.processes import process


@pytest.fixture
def doctor(run):
    def ask():
        result = run("doctor", "--json")
        return result.exit_code, json.loads(result.stdout)

    return ask


@pytest.fixture
def installed(monkeypatch):
    """Return a function that pretends other versions of packages; None: not installed."""
    real = metadata.version

    def pretend(**versions):
        known = {name.replace("_", "-"): version for name, version in versions.items()}

        def version(name):
            if known.get(name, "") is None:
                raise metadata.PackageNotFoundError(name)
            return known.get(name) or real(name)

        monkeypatch.setattr(checkup.metadata, "version", version)

    return pretend


def test_a_sound_installation_has_no_problem(run, doctor):
    code, found = doctor()
    assert code == 0 and found["ok"] and found["problems"] == []
    assert found["extras"]["cli"] == {"installed": True, "missing": [], "install": "pip install 'repsurgery[cli]'"}
    assert found["packages"]["numpy"] and found["torch"]["threads"] >= 1 and found["models"]["smollm2-135m"]["install"]
    assert found["folders"]["temporary"]["writable"] and found["memory"]["free_bytes"] > 0
    shown = run("doctor")
    assert shown.exit_code == 0 and "No problem was found." in shown.stdout and "Problem:" not in shown.stdout


def test_a_missing_extra_is_no_problem(doctor, installed):
    installed(optuna=None)
    code, found = doctor()
    assert code == 0
    assert found["extras"]["tune"] == {
        "installed": False,
        "missing": ["optuna"],
        "install": "pip install 'repsurgery[tune]'",
    }


def test_a_package_that_is_too_old_is_one_problem_with_its_remedy(run, doctor, installed):
    installed(pydantic="2.1")
    code, found = doctor()
    assert code == 1 and not found["ok"]
    (problem,) = found["problems"]
    assert "pydantic 2.1 is installed" in problem["problem"]
    assert problem["remedy"] == "Run: pip install --upgrade 'pydantic>=2.10'"
    shown = run("doctor")
    assert shown.exit_code == 1 and shown.stdout.count("Problem:") == 1


def test_a_package_that_cannot_be_imported_is_a_problem(doctor, monkeypatch):
    real = checkup.import_module

    def broken(name):
        if name == "torch":
            raise OSError("libtorch_cpu.so: cannot open shared object file")
        return real(name)

    monkeypatch.setattr(checkup, "import_module", broken)
    code, found = doctor()
    assert code == 1 and found["torch"] is None
    (problem,) = found["problems"]
    assert "torch is installed and cannot be imported (libtorch_cpu.so" in problem["problem"]
    assert problem["remedy"].startswith("Run: pip install --force-reinstall 'torch==")


@pytest.mark.parametrize(
    ("variable", "problem", "remedy"),
    [
        ("REPSURGERY_DATA", "which does not exist", "Correct or remove the variable REPSURGERY_DATA."),
        ("REPSURGERY_CACHE", "cannot be used as a folder", "Set REPSURGERY_CACHE to a folder that can be written."),
        ("HF_HOME", "cannot be used as a folder", "Set HF_HOME to another folder."),
    ],
)
def test_a_folder_that_cannot_be_used_is_a_problem(doctor, monkeypatch, tmp_path, variable, problem, remedy):
    (tmp_path / "file").write_text("")
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv(variable, str(tmp_path / "file" / "inside"))
    code, found = doctor()
    assert code == 1
    (one,) = found["problems"]
    assert problem in one["problem"] and one["remedy"] == remedy


def test_a_full_disk_is_a_problem(doctor, monkeypatch):
    monkeypatch.setattr(checkup, "LEAST_DISK", 2**62)
    code, found = doctor()
    assert code == 1 and "are free at" in found["problems"][0]["problem"]


def test_extras_of_extras_count(monkeypatch):
    lines = ["a>=1", "b>=2; extra == 'inner'", "repsurgery[inner]; extra == 'outer'", "c; extra == 'outer'"]
    monkeypatch.setattr(checkup.metadata, "requires", lambda name: lines)
    assert sorted(one.name for one in checkup._requirements("outer")) == ["b", "c"]


def test_doctor_works_with_no_extra_but_cli():
    hidden = (
        "torch",
        "transformers",
        "platformdirs",
        "psutil",
        "filelock",
        "datasets",
        "huggingface_hub",
        "matplotlib",
    )
    done = process("doctor", "--json", hidden=hidden, base={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["ok"] and found["torch"] is None and found["models"] == {}
    assert "torch" in found["extras"]["lm"]["missing"] and "lm" in found["extras"]["lm"]["install"]
