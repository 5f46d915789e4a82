import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from repsurgery.checkpoint import Checkpoint, Journal, added_files, atomic_folder, digest, journal_of, keyed_folder
from repsurgery.errors import CacheWarning, FileFormatError

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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-30, 300) | st.floats(allow_nan=False) | st.text('1,"e-', max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a1", max_size=2), inner, max_size=2),
    max_leaves=4,
)


def alike(a, b):
    """Whether two values are the same JSON: 1 is not 1.0, and True is not 1."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


@given(st.lists(JSON, max_size=4), st.lists(JSON, max_size=4))
@example([1, 23], [12, 3])
@example([1, 2.5], [12.5])
@example([1, -2], [1 - 2])
@example(["1", 2], [1, "2"])
@example([[1], 2], [[1, 2]])
def test_other_values_have_another_digest(some, others):
    same = len(some) == len(others) and all(map(alike, some, others))
    assert (digest(*some) == digest(*others)) is same


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_numbers_do_not_run_together(a, b):
    text = f"{a}{b}"
    cuts = [(int(text[:i]), int(text[i:])) for i in range(1, len(text)) if i == len(text) - 1 or text[i] != "0"]
    assert len({digest(*pair) for pair in cuts}) == len(set(cuts))


def test_digests_are_those_of_files_and_records_on_disk():
    # literal values: another canonical form would orphan every work folder and refuse every record
    assert digest({"b": [1, None, 0.5], "a": "ü"}) == "1c9cd66970c5b1559c048b06e14aa764ea42add33019ab10546472552b772012"
    assert (
        digest({"b": [1, None, 0.5], "a": "ü"}, escape=False)
        == "37a34322c476b69c13593bf4278ad17a73e0fc59f37c3b138f41c0f6805412a0"
    )
    assert digest([1], [2]) == "2e5cb14953ad13e4dfd3107ce5f4c2be6288e99f178f1cb8b66d421908e449bf"
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})
    assert len(digest("\ud800", escape=False)) == 64


def test_a_folder_replaces_the_old_one_or_leaves_it_alone(tmp_path):
    folder = tmp_path / "model"
    for text in ("old", "new"):
        with atomic_folder(folder) as draft:
            (draft / text).touch()
            assert not (folder / text).exists()
    with pytest.raises(OSError, match="full"), atomic_folder(folder) as draft:
        (draft / "half").touch()
        raise OSError("full")
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["model", "model/new"]


def test_added_files_appear_together_or_not_at_all(tmp_path):
    folder = tmp_path / "below" / "adapter"
    with added_files(folder) as draft:
        (draft / "weights").write_text("first")
    (folder / "own").write_text("kept")
    with pytest.raises(OSError, match="full"), added_files(folder) as draft:
        (draft / "weights").write_text("second")
        raise OSError("the disk is full")
    assert {file.name: file.read_text() for file in folder.iterdir()} == {"weights": "first", "own": "kept"}
    assert [path.name for path in folder.parent.iterdir()] == ["adapter"]
    with added_files(folder) as draft:
        (draft / "weights").write_text("second")
    assert (folder / "weights").read_text() == "second" and (folder / "own").exists()


def read(path):
    if not path.read_text().isdigit():
        raise FileFormatError(f"{path} is damaged")
    return int(path.read_text())


def test_a_result_is_computed_once_and_again_only_if_it_is_damaged(tmp_path):
    computed = []

    def get():
        checkpoint = Checkpoint(
            keyed_folder(tmp_path, {"seed": 0}), read, lambda path, value: path.write_text(f"{value}")
        )
        return checkpoint.get("answer", lambda: computed.append(1) or 42)

    assert [get(), get()] == [42, 42] and len(computed) == 1
    (path,) = tmp_path.rglob("answer.safetensors")
    path.write_text("4x")
    with pytest.warns(CacheWarning, match=r"The result 'answer' is computed again: .*answer\.safetensors is damaged"):
        assert get() == 42
    assert [get(), len(computed)] == [42, 2]
    assert keyed_folder(tmp_path, {"seed": 1}) != path.parent == keyed_folder(tmp_path, {"seed": 0})
