import json
import multiprocessing
import os
import signal
import sys
import warnings
from pathlib import Path

import platformdirs
import pytest
from platformdirs import windows
from platformdirs.macos import MacOS
from platformdirs.unix import Unix

from repsurgery.checkpoint import file_digest
from repsurgery.errors import CacheWarning, ModelError
from repsurgery.lm.load.folder import build_once, cache_root, flaw

SOURCE = "digest-of-the-source"


def write_weights(folder):
    (folder / "weights.bin").write_bytes(b"weights")
    (folder / "deeper").mkdir()
    (folder / "deeper" / "config.json").write_text("{}")


def refuse(folder):
    raise AssertionError("a sound folder must not be built again")


def killed_half_way(folder):
    (folder / "weights.bin").write_bytes(b"wei")
    os.kill(os.getpid(), signal.SIGKILL)


def build_slowly(folder, gate, log):
    def build(fresh):
        with Path(log).open("a") as stream:
            stream.write("built\n")
        gate.wait(0.3)
        write_weights(fresh)

    build_once(Path(folder), build, source=SOURCE)


def test_a_folder_is_built_once_and_every_file_is_digested(tmp_path):
    folder = build_once(tmp_path / "cache" / "model", write_weights, source=SOURCE)
    assert build_once(folder, refuse, source=SOURCE) == folder
    manifest = json.loads((folder / "repsurgery.json").read_text())
    assert manifest["files"]["weights.bin"] == file_digest(folder / "weights.bin")
    assert set(manifest["files"]) == {"weights.bin", "deeper/config.json"}
    assert [path.name for path in folder.parent.iterdir() if path.name.startswith(".building")] == []


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda f: (f / "weights.bin").write_bytes(b"weighty"), "weights.bin does not match its digest"),
        (lambda f: (f / "deeper" / "config.json").unlink(), "deeper/config.json is missing"),
        (lambda f: (f / "repsurgery.json").unlink(), "no manifest"),
        (lambda f: (f / "repsurgery.json").write_text("{"), "manifest cannot be read"),
        (lambda f: (f / "repsurgery.json").write_text('{"source": "x"}'), "another source"),
    ],
)
def test_a_damaged_folder_is_built_again_with_a_warning(tmp_path, damage, reason):
    folder = build_once(tmp_path / "model", write_weights, source=SOURCE)
    damage(folder)
    with pytest.warns(CacheWarning, match=reason):
        build_once(folder, write_weights, source=SOURCE)
    assert flaw(folder, source=SOURCE) is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_killed_build_leaves_no_folder_and_the_next_one_sweeps_up(tmp_path):
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=build_once, args=(tmp_path / "model", killed_half_way), kwargs={"source": SOURCE})
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not (tmp_path / "model").exists()
    assert len(list(tmp_path.glob(".building-*"))) == 1
    build_once(tmp_path / "model", write_weights, source=SOURCE)
    assert list(tmp_path.glob(".building-*")) == []


def test_a_build_that_raises_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        build_once(tmp_path / "model", _interrupt, source=SOURCE)
    assert not (tmp_path / "model").exists()
    assert list(tmp_path.glob(".building-*")) == []


def _interrupt(folder):
    (folder / "weights.bin").write_bytes(b"wei")
    raise KeyboardInterrupt


def test_processes_that_race_build_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    gate = context.Event()
    arguments = (str(tmp_path / "model"), gate, str(tmp_path / "log"))
    processes = [context.Process(target=build_slowly, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert (tmp_path / "log").read_text() == "built\n"
    assert flaw(tmp_path / "model", source=SOURCE) is None


def test_a_place_that_cannot_be_written_names_the_variable(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="set REPSURGERY_CACHE to a folder"):
        build_once(tmp_path / "file" / "model", write_weights, source=SOURCE)


def test_the_environment_chooses_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REPSURGERY_CACHE", str(tmp_path / "mine"))
    assert cache_root() == tmp_path / "mine"
    monkeypatch.delenv("REPSURGERY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    monkeypatch.setattr(windows, "get_win_folder", windows.get_win_folder_from_env_vars)  # this machine has no registry
    for platform in (Unix, windows.Windows, MacOS):
        monkeypatch.setattr(platformdirs, "PlatformDirs", platform)
        assert cache_root().name == "repsurgery"
        assert cache_root().parent == tmp_path or platform is MacOS
    monkeypatch.setattr(platformdirs, "PlatformDirs", Unix)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root() == tmp_path / ".cache" / "repsurgery"


def test_a_sound_folder_is_used_without_warning(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_once(tmp_path / "model", write_weights, source=SOURCE)
        build_once(tmp_path / "model", refuse, source=SOURCE)
