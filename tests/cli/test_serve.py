"""``repsurgery serve`` refuses a start that cannot succeed in one line, before it loads a model."""

import socket
import subprocess
import sys

import pytest

import repsurgery as rs
from repsurgery import lm
from tests.lm.test_import import BLOCKED


@pytest.fixture
def shift(tmp_path):
    path = tmp_path / "kinder.safetensors"
    rs.save(rs.Translation([1.0, 2.0]), path)
    return path


@pytest.fixture(autouse=True)
def _no_model(monkeypatch):
    monkeypatch.setattr(lm, "load", lambda *name, **how: pytest.fail("a model was loaded"))


def refused(run, *words):
    result = run("serve", *words)
    assert result.exit_code == 1
    (line,) = result.stderr.strip().splitlines()
    return line


def test_a_port_in_use_is_one_line(run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = refused(run, "--port", port)
    assert line.startswith(f"Error: --port is {port}; the server cannot listen on it at 127.0.0.1")
    assert "choose another port" in line


def test_a_strange_host_is_one_line(run):
    assert "--host is" in refused(run, "--host", "no such host", "--port", 0)


def test_a_missing_file_is_one_line(run, tmp_path):
    assert "There is no steering file" in refused(run, "--steering", tmp_path / "nothing.safetensors")
    assert "--steerings-dir is" in refused(run, "--steerings-dir", tmp_path / "nowhere")


def test_a_file_that_holds_no_steering_is_one_line(run, tmp_path, shift):
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(shift.read_bytes()[:-1])
    assert "damaged.safetensors" in refused(run, "--steering", damaged)
    gate = tmp_path / "moments.safetensors"
    rs.save(rs.ClassMoments.of([[0.0], [1.0], [2.0]], [0, 1, 0]), gate)
    assert "it takes a fitted estimator" in refused(run, "--steering", gate)


@pytest.mark.parametrize(("site", "reason"), [("final", "has 2 features"), ("layers.99", "There is no 'layers.99'")])
def test_a_named_file_that_does_not_fit_the_model_is_one_line(run, tmp_path, model_folder, site, reason):
    file = tmp_path / "kinder.safetensors"
    rs.save(rs.SteeringFunction({None: rs.Translation([1.0, 2.0])}).with_origin(site=site), file)
    line = refused(run, "--steering", file, "--model", model_folder, "--port", 0)
    assert f"{file} cannot be used with this model" in line and reason in line


def test_two_files_of_one_name_are_one_line(run, tmp_path, shift):
    other = tmp_path / "other" / shift.name
    other.parent.mkdir()
    other.write_bytes(shift.read_bytes())
    assert "would both be called 'kinder'. Rename one of them." in refused(
        run, "--steering", shift, "--steering", other
    )
    assert "would both be called" in refused(run, "--steering", other, "--steerings-dir", tmp_path)


def test_an_empty_key_is_one_line(run):
    assert "The API key is empty" in refused(run, "--api-key", " ")


def test_a_limit_of_nothing_is_one_line(run):
    assert "--request-seconds is 0.0; it must be a positive number." in refused(run, "--request-seconds", 0)


def test_a_missing_extra_is_named():
    code = (
        BLOCKED.format(missing=["fastapi"])
        + "sys.argv = ['repsurgery', 'serve']\nfrom repsurgery.cli import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "pip install 'repsurgery[serve]'" in done.stderr
    assert "Traceback" not in done.stderr
