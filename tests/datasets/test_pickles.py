import os
import pickle
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from repsurgery.datasets.pickles import read_plain_pickle
from repsurgery.errors import DataError

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
        with pytest.raises(DataError, match="cut off or no pickle"):
            read_plain_pickle(tmp_path / "p.pickle")


def test_other_bytes_and_no_file_are_errors(tmp_path):
    (tmp_path / "p.pickle").write_bytes(b"<html>not found</html>")
    with pytest.raises(DataError, match="no pickle"):
        read_plain_pickle(tmp_path / "p.pickle")
    with pytest.raises(DataError, match="There is no file"):
        read_plain_pickle(tmp_path / "none.pickle")
