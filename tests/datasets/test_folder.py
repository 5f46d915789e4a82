import pytest

from repsurgery.datasets import data_folder
from repsurgery.errors import DataError


def test_the_variable_names_the_parent(tmp_path, monkeypatch):
    (tmp_path / "gap").mkdir()
    monkeypatch.setenv("REPSURGERY_DATA", str(tmp_path))
    assert data_folder("gap") == tmp_path / "gap"


def test_a_missing_folder_says_where_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("REPSURGERY_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"no folder .*gap.*Pass its folder.*gap-coreference"):
        data_folder("gap")
    monkeypatch.delenv("REPSURGERY_DATA")
    with pytest.raises(DataError, match=r"REPSURGERY_DATA is not set.*holds it as 'other'\.$"):
        data_folder("other")
