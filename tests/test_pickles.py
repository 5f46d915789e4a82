import os
import pickle
import pickletools
import struct
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from repsurgery.errors import DataError
from repsurgery.pickles import read_plain_pickle

PLAIN = [{"g": "f", "n": 3, "x": 0.5, "none": None, "t": ("ä", b"b", {1, 2}), "big": 2**80, "yes": True}]


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", range(3, pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_come_back_as_they_were(tmp_path, protocol):
    # protocol 3 builds a set by a call
    plain = PLAIN if protocol > 3 else [{**PLAIN[0], "t": ("ä", b"b")}]
    (tmp_path / "p.pickle").write_bytes(pickle.dumps(plain, protocol=protocol))
    assert read_plain_pickle(tmp_path / "p.pickle") == plain


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_malicious_pickle_does_not_run(tmp_path, protocol):
    mark = tmp_path / "mark"
    data = pickle.dumps([{"g": Malicious(mark)}], protocol=protocol)
    (tmp_path / "p.pickle").write_bytes(data)
    with pytest.raises(DataError, match=r"names \w+\.system; only lists"):
        read_plain_pickle(tmp_path / "p.pickle")
    assert not mark.exists()
    pickle.loads(data)  # the counter-check: run as a pickle, it leaves its mark
    assert mark.exists()


@pytest.mark.parametrize(
    ("value", "named"),
    [(np.float64(1), "numpy"), (OrderedDict(a=1), "collections.OrderedDict"), (Path("a"), "pathlib"), (len, "len")],
)
def test_objects_are_refused_by_name(tmp_path, value, named):
    (tmp_path / "p.pickle").write_bytes(pickle.dumps([value]))
    with pytest.raises(DataError, match=named):
        read_plain_pickle(tmp_path / "p.pickle")


def test_every_cut_of_a_pickle_is_an_error(tmp_path):
    whole = pickle.dumps(PLAIN)
    for end in range(len(whole)):
        (tmp_path / "p.pickle").write_bytes(whole[:end])
        with pytest.raises(DataError, match="truncated or not a pickle"):
            read_plain_pickle(tmp_path / "p.pickle")


def test_other_bytes_and_no_file_are_errors(tmp_path):
    (tmp_path / "p.pickle").write_bytes(b"<html>not found</html>")
    with pytest.raises(DataError, match="not a pickle"):
        read_plain_pickle(tmp_path / "p.pickle")
    with pytest.raises(DataError, match="There is no file"):
        read_plain_pickle(tmp_path / "none.pickle")


class Named:
    pass


def test_a_stand_in_takes_the_place_of_a_name_that_is_not_looked_up(tmp_path, monkeypatch):
    value = Named()
    value.words = OrderedDict(a=1)
    stand_ins = {f"{Named.__module__}.Named": SimpleNamespace, "collections.OrderedDict": dict}
    (tmp_path / "p.pickle").write_bytes(pickle.dumps(value))
    monkeypatch.delattr(f"{Named.__module__}.Named")  # nothing of that name exists any more
    read = read_plain_pickle(tmp_path / "p.pickle", stand_ins)
    assert read == SimpleNamespace(words={"a": 1})
    assert type(read.words) is dict
    with pytest.raises(DataError, match=r"names collections.OrderedDict"):
        read_plain_pickle(tmp_path / "p.pickle", {key: stand_ins[key] for key in stand_ins if "Named" in key})


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_stand_ins_open_the_door_to_no_other_name(tmp_path, protocol):
    mark = tmp_path / "mark"
    (tmp_path / "p.pickle").write_bytes(pickle.dumps([OrderedDict(a=Malicious(mark))], protocol=protocol))
    with pytest.raises(DataError, match=r"names \w+\.system"):
        read_plain_pickle(tmp_path / "p.pickle", {"collections.OrderedDict": dict})
    assert not mark.exists()


def test_a_pickle_cannot_alter_a_built_in_stand_in(tmp_path):
    # builds no object, but sets an attribute on what is found under the name itself
    (tmp_path / "p.pickle").write_bytes(b"cm\nT\n(N}S'mark'\nI1\nstb.")
    for stand_in in (dict, SimpleNamespace, ()):
        with pytest.raises(DataError, match="truncated or not a pickle"):
            read_plain_pickle(tmp_path / "p.pickle", {"m.T": stand_in})
        assert not hasattr(stand_in, "mark")

    class Own:
        pass

    read_plain_pickle(tmp_path / "p.pickle", {"m.T": Own})
    assert Own.mark == 1  # the counter-check, and the reason to give built-in types


MEASURE = """
import resource, sys
from pathlib import Path
from repsurgery.errors import DataError
from repsurgery.pickles import read_plain_pickle
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_plain_pickle(Path(sys.argv[1]))
except DataError:
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04Nr" + (2**27).to_bytes(4, "little") + b".",  # LONG_BINPUT
        b"\x80\x04Np134217728\n.",  # PUT
        b"\x80\x04\x95" + (2**31).to_bytes(8, "little") + b"N.",  # FRAME
        b"\x80\x04\x8e" + (2**31).to_bytes(8, "little") + b"N.",  # BINBYTES8
    ],
    ids=["memo", "text memo", "frame", "bytes"],
)
def test_a_small_pickle_costs_little_memory(tmp_path, data):
    (tmp_path / "p.pickle").write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, tmp_path / "p.pickle"], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 16 * 1024  # kilobytes: the reader itself needs some; the array of the memo took 2**21


LIMITED = """
import resource, sys
from pathlib import Path
from repsurgery.errors import DataError
from repsurgery.pickles import read_plain_pickle
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + 2**26
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for file in sys.argv[1:]:
    try:
        read_plain_pickle(Path(file))
    except DataError:
        print(Path(file).name)
    except MemoryError:
        print(Path(file).name, "allocates")
"""

LENGTHS = {
    pickletools.TAKEN_FROM_ARGUMENT1: struct.pack("<B", 2**8 - 1),
    pickletools.TAKEN_FROM_ARGUMENT4: struct.pack("<i", 2**31 - 1),
    pickletools.TAKEN_FROM_ARGUMENT4U: struct.pack("<I", 2**32 - 1),
    pickletools.TAKEN_FROM_ARGUMENT8U: struct.pack("<Q", 2**33),
}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory of a process is limited on Linux alone")
def test_no_length_in_a_pickle_allocates_more_than_the_file_holds(tmp_path):
    # every opcode with a length, by Python's own table of them; a frame has its length as a mere number there
    found = {op.name: op.code.encode("latin-1") + LENGTHS[op.arg.n] for op in pickletools.opcodes if has_length(op)}
    assert {"BYTEARRAY8", "BINBYTES8", "BINUNICODE8", "LONG4", "BINSTRING", "SHORT_BINBYTES"} <= found.keys()
    found["FRAME"] = pickle.FRAME + struct.pack("<Q", 2**33)
    for name, data in list(found.items()):
        (tmp_path / name).write_bytes(b"\x80\x05" + data + b".")
        framed = data + b"."
        (tmp_path / f"{name} in a frame").write_bytes(
            b"\x80\x05" + pickle.FRAME + struct.pack("<Q", len(framed)) + framed
        )
    files = sorted(tmp_path.iterdir())
    done = subprocess.run([sys.executable, "-c", LIMITED, *files], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [file.name for file in files]


def has_length(opcode):
    return opcode.arg is not None and opcode.arg.n in LENGTHS


@pytest.mark.parametrize("size", [0, 5, 10**6])
def test_a_bytearray_comes_back_whole(tmp_path, size):
    value = {"b": bytearray(os.urandom(size))}
    (tmp_path / "p.pickle").write_bytes(pickle.dumps(value, protocol=5))
    read = read_plain_pickle(tmp_path / "p.pickle")
    assert read == value and type(read["b"]) is bytearray
