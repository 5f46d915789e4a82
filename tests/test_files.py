import json
import os
import signal
import struct
import threading

import numpy as np
import pytest
from safetensors.numpy import load_file

from repsurgery.errors import FileFormatError
from repsurgery.files import Contents, digest_of, read_file, to_bytes, write_file

CONTENTS = Contents("thing", {"a": [1, "x", None]}, {"W": np.arange(6.0).reshape(2, 3), "n": np.array(4)})


@pytest.fixture
def path(tmp_path):
    write_file(tmp_path / "f.safetensors", CONTENTS)
    return tmp_path / "f.safetensors"


def test_what_is_written_is_read(path):
    back = read_file(path, kind="thing")
    assert (back.kind, back.header) == ("thing", CONTENTS.header)
    for name, array in CONTENTS.arrays.items():
        assert (back.arrays[name] == array).all()
        assert back.arrays[name].dtype == array.dtype


@pytest.mark.parametrize("keep", [0, 7, 50, -1])
def test_truncated_files_are_refused(path, keep):
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(FileFormatError, match="Write it again"):
        read_file(path)


def test_every_flipped_byte_is_noticed(path):
    data = path.read_bytes()
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        with pytest.raises(FileFormatError):
            read_file(path)


def rewrite(path, change):
    """Change the JSON header and make the digest fit again, as a forger would."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8 : 8 + size])
    header = json.loads(head["__metadata__"]["repsurgery"])
    arrays = dict(read_file(path).arrays)
    change(header, head)
    head["__metadata__"]["repsurgery"] = json.dumps(header, sort_keys=True)
    head["__metadata__"]["digest"] = digest_of(arrays, header)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


def test_other_versions_kinds_and_writers_are_refused(path):
    with pytest.raises(
        FileFormatError, match=r"contains data of kind .thing., not .map.\. Give a file of the kind needed"
    ):
        read_file(path, kind="map")
    rewrite(path, lambda header, head: None)
    read_file(path)
    rewrite(path, lambda header, head: header.update(version=99))
    with pytest.raises(FileFormatError, match=r"version 99.*Upgrade"):
        read_file(path)


def test_numbers_that_are_not_finite_are_refused(tmp_path):
    write_file(tmp_path / "f", Contents("thing", {}, {"W": np.array([np.nan])}))
    with pytest.raises(FileFormatError, match="NaN or infinity in 'W'"):
        read_file(tmp_path / "f")


def test_a_foreign_safetensors_file_is_refused(tmp_path):
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(2)}, tmp_path / "f")
    with pytest.raises(FileFormatError, match="not written by repsurgery"):
        read_file(tmp_path / "f")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_file(tmp_path / "absent")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(path, monkeypatch):
    before = path.read_bytes()

    def full(_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_file(path, Contents("thing", {}, {"W": np.zeros(3)}))
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError, match="Create it first"):
        write_file(path.parent / "absent" / "f", CONTENTS)
    with pytest.raises(IsADirectoryError, match="a file in it"):
        write_file(path.parent, CONTENTS)


def test_the_digest_sees_names_shapes_and_dtypes():
    arrays = {"a": np.zeros(4), "b": np.ones(2)}
    base = digest_of(arrays)
    assert digest_of(dict(reversed(arrays.items()))) == base
    changed = [
        {"a": np.zeros(4), "c": np.ones(2)},
        {"a": np.zeros((2, 2)), "b": np.ones(2)},
        {"a": np.zeros(8, dtype=np.float32), "b": np.ones(2)},
    ]
    assert len({base, *(digest_of(c) for c in changed), digest_of(arrays, {"x": 1})}) == 5


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(path, monkeypatch):
    before, handler = path.read_bytes(), signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(os, "fsync", lambda _: signal.raise_signal(signal.SIGINT))
    try:
        with pytest.raises(KeyboardInterrupt):
            write_file(path, Contents("thing", {}, {"W": np.zeros(3)}))
    finally:
        signal.signal(signal.SIGINT, handler)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_file_has_the_permissions_of_any_new_file(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_file(tmp_path / "f", CONTENTS)
    finally:
        os.umask(before)
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o666 & ~mask


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400, 0o664])
def test_a_replaced_file_keeps_its_permissions(path, mode):
    path.chmod(mode)
    before = os.umask(0o022)
    try:
        write_file(path, Contents("thing", {}, {"W": np.zeros(3)}))
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == mode
    assert read_file(path).arrays.keys() == {"W"}


def test_a_draft_is_never_more_open_than_the_file_it_replaces(path, monkeypatch):
    seen, sync = [], os.fsync
    path.chmod(0o600)

    def looking(handle):
        seen.append(os.fstat(handle).st_mode & 0o777)
        sync(handle)

    monkeypatch.setattr(os, "fsync", looking)
    write_file(path, CONTENTS)
    assert seen == [0o600]


@pytest.mark.parametrize("head", [{"W": 3}, {"W": None}, {"W": {}}, {"W": []}, {"W": {"dtype": []}}, 3, "x"])
def test_a_forged_header_is_refused_without_internals_of_python(path, head):
    if isinstance(head, dict):
        rewrite(path, lambda header, whole: whole.update(head))
    else:
        path.write_bytes(struct.pack("<Q", len(json.dumps(head))) + json.dumps(head).encode() + bytes(8))
    with pytest.raises(FileFormatError, match=r"not a safetensors file.* Write it again\.$") as caught:
        read_file(path)
    for internal in ("object", "subscriptable", "unhashable", "NoneType", "Error"):
        assert internal not in str(caught.value).replace("JSON object", "")


def test_writing_never_opens_the_files_of_other_threads_to_everybody(tmp_path):
    before, stop, wrong = os.umask(0o077), threading.Event(), []

    def others():
        for i in range(10**9):
            (tmp_path / f"private-{i % 50}").unlink(missing_ok=True)
            (tmp_path / f"private-{i % 50}").touch()
            if (tmp_path / f"private-{i % 50}").stat().st_mode & 0o077:
                wrong.append(i)
            if stop.is_set():
                return

    thread = threading.Thread(target=others)
    thread.start()
    try:
        for _ in range(300):
            write_file(tmp_path / "f", CONTENTS)
    finally:
        stop.set()
        thread.join()
        os.umask(before)
    assert not wrong


def test_equal_contents_give_equal_bytes(tmp_path):
    names = [f"array {i} ü" for i in range(12)]
    first = {name: np.full((i + 1, 2), float(i)) for i, name in enumerate(names)}
    header = {"b": 1, "a": {"z": "é", "y": [1.5, None]}}
    every = {
        to_bytes(Contents("thing", dict(items), arrays))
        for items in (list(header.items()), list(header.items())[::-1])
        for arrays in (first, dict(reversed(first.items())), {name: array.copy() for name, array in first.items()})
        for _ in range(5)
    }
    assert len(every) == 1
    (data,) = every
    assert int.from_bytes(data[:8], "little") % 8 == 0
    (tmp_path / "f").write_bytes(data)
    # other programs read it as any safetensors file
    loaded = load_file(tmp_path / "f")
    assert all((loaded[name] == array).all() for name, array in first.items())
    assert len(loaded) == len(first)
    assert to_bytes(Contents("thing", header | {"b": 2}, first)) != data
