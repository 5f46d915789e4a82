"""Names, flags, errors, records and reported numbers stay as users know them; see snapshot.py."""

import json

import pytest

from tests.contract import snapshot

KEPT = json.loads(snapshot.FILE.read_text())


@pytest.mark.parametrize("path", snapshot.PATHS)
def test_public_names_are_kept(path):
    assert set(KEPT["names"][path]) <= set(snapshot.names()[path])


@pytest.mark.parametrize("verb", KEPT["flags"])
def test_flags_are_kept(verb):
    today = snapshot.flags()[verb]
    assert {name: today.get(name) for name in KEPT["flags"][verb]} == KEPT["flags"][verb]


def test_error_types_are_kept():
    today = snapshot.error_types()
    for name, bases in KEPT["errors"].items():
        assert set(bases) <= set(today[name])


def test_committed_records_are_untouched():
    assert snapshot.records() == KEPT["records"]


def test_the_report_on_the_committed_records_gives_the_same_numbers():
    assert snapshot.reported_numbers() == KEPT["reported"]
