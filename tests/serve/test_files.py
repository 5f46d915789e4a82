"""Files under a server: strange names, permissions, stamps and folders that are gone."""

import json
import os

import pytest

import repsurgery as rs
from repsurgery.errors import ParameterError
from repsurgery.serve.sources import Sources, check_sources
from tests.lm.tiny_models import WIDTH, tiny_model, tiny_tokenizer
from tests.serve.running import running, steering

BODY = {"prompt": "w1", "temperature": 0, "max_tokens": 12}


def names(server):
    return [one["id"] for one in json.loads(server.send("GET", "/v1/models")[2])["data"]]


def test_names_that_cannot_be_sent_are_left_out(tmp_path):
    rs.save(steering(1), tmp_path / "good.safetensors")
    data = (tmp_path / "good.safetensors").read_bytes()
    strange = [b"\xff.safetensors", b"a\r\nSet-Cookie: b.safetensors", b"tab\there.safetensors"]
    for name in strange:
        (tmp_path / os.fsdecode(name)).write_bytes(data)
    with running(tiny_model("llama"), tiny_tokenizer(), sources=Sources(folder=tmp_path)) as server:
        assert names(server) == ["tiny", "tiny+good"]
        status, _, _ = server.post(
            "/v1/completions", **BODY, steering=[{"name": "good"}, {"name": "a\r\nSet-Cookie: b"}]
        )
        assert status == 404
    for name in strange:
        with pytest.raises(ParameterError, match=r"cannot be printed. Rename the file"):
            check_sources([tmp_path / os.fsdecode(name)], None)


def test_a_warning_about_steerings_that_change_each_other_is_a_header(tmp_path):
    for name in ("one", "café"):
        shift = rs.SteeringFunction({None: rs.Translation([1.0] * WIDTH)}).with_origin(site="layers.0")
        rs.save(shift, tmp_path / f"{name}.safetensors")
    with running(tiny_model("llama"), tiny_tokenizer(), sources=Sources(folder=tmp_path)) as server:
        chosen = [{"name": "one"}, {"name": "café"}]
        _, _, headers = server.post("/v1/completions", **BODY, steering=chosen)
        assert headers["x-repsurgery-warning"] == "at layers.0 caf? changes the effect of one by +100% (predicted)"
        _, _, headers = server.post("/v1/completions", **BODY, steering=chosen[:1])
        assert "x-repsurgery-warning" not in headers


def test_a_file_is_offered_once_it_can_be_read(tmp_path, monkeypatch, caplog):
    from pathlib import Path

    file = tmp_path / "mood.safetensors"
    rs.save(steering(1), file)
    read = Path.read_bytes

    # the tests may run as a user who can read everything
    def refused(path):
        if path == file:
            raise PermissionError(13, "Permission denied")
        return read(path)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", refused)
        with running(tiny_model("llama"), tiny_tokenizer(), sources=Sources(folder=tmp_path)) as server:
            for _ in range(3):
                assert server.post("/v1/completions", **BODY, steering={"name": "mood"})[0] == 404
            assert caplog.text.count("cannot be read: Permission denied") == 1
            patched.undo()
            assert server.complete(**BODY, steering={"name": "mood"})["choices"]
            assert names(server) == ["tiny", "tiny+mood"]


def test_new_content_with_the_time_and_size_of_the_old_is_noticed(tmp_path):
    file, other = tmp_path / "mood.safetensors", tmp_path / "other"
    rs.save(steering(1), file)
    rs.save(steering(2), other)
    stat = file.stat()
    assert stat.st_size == other.stat().st_size
    with running(tiny_model("llama"), tiny_tokenizer(), sources=Sources(folder=tmp_path)) as server:
        before = server.complete(**BODY, steering={"name": "mood"})["choices"]
        file.write_bytes(other.read_bytes())
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert server.complete(**BODY, steering={"name": "mood"})["choices"] != before


def test_a_lost_folder_keeps_its_own_files_only(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        rs.save(steering(1), folder / f"{folder.name}.safetensors")
    single = there / "there.safetensors"
    with running(tiny_model("llama"), tiny_tokenizer(), sources=Sources({"there": single}, here)) as server:
        assert names(server) == ["tiny", "tiny+here", "tiny+there"]
        here.rename(tmp_path / "gone")
        single.unlink()
        assert names(server) == ["tiny", "tiny+here"]
