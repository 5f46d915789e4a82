import pytest

from repsurgery.studies.toxicity.journal import Journal, journal_of

ENTRIES = {"a": [1, None, 0.25], "b\nc": "line\u2028break", "ü": {"x": ["\ud800"]}}


@pytest.fixture
def journal(tmp_path):
    found = Journal(tmp_path / "folder" / "j.jsonl")
    found.note(ENTRIES)
    return found


def test_what_was_noted_is_read_back(journal):
    assert dict(Journal(journal.path)) == dict(journal) == ENTRIES
    assert len(journal) == 3 and "missing" not in journal


def test_the_last_note_of_a_key_counts(journal):
    journal.note({"a": [2]})
    assert journal["a"] == Journal(journal.path)["a"] == [2]
    assert len(Journal(journal.path)) == 3


def test_a_torn_line_costs_that_line_alone(journal):
    whole = journal.path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        journal.path.write_bytes(whole[:cut])
        torn = Journal(journal.path)
        # a line is whole without its line feed, too
        complete = sum(cut >= end - 1 for end in ends)
        assert list(torn) == list(ENTRIES)[:complete]
        torn.note({"next": cut})
        assert Journal(journal.path)["next"] == cut
        assert list(Journal(journal.path)) == [*list(ENTRIES)[:complete], "next"]


def test_an_altered_line_does_not_count(journal):
    text = journal.path.read_bytes().replace(b"0.25", b"0.75")
    journal.path.write_bytes(text)
    assert list(Journal(journal.path)) == list(ENTRIES)[1:]


def test_jobs_do_not_share_a_file(tmp_path):
    one, other = journal_of(tmp_path, "texts", {"seed": 0}), journal_of(tmp_path, "texts", {"seed": 1})
    one.note({"a": 1})
    assert "a" not in journal_of(tmp_path, "texts", {"seed": 1}) and one.path != other.path
    assert journal_of(tmp_path, "texts", {"seed": 0})["a"] == 1
