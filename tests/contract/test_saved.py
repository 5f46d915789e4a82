"""Files and documents of --json stay what outside programs read; see saved.py and documents.py."""

import json

import pytest

import repsurgery as rs
from repsurgery.cli.app import VERBS
from repsurgery.errors import FileFormatError
from tests.contract import documents, saved, snapshot

KEPT = json.loads(snapshot.FILE.read_text())
FILES, DOCUMENTS = KEPT["files"], KEPT["documents"]
PATHS = sorted(saved.FOLDER.glob("*.safetensors"))


def broken(tree):
    """Yield copies of a kept tree, each with a key that was not there, or with another type at one place."""
    if isinstance(tree, dict):
        yield {**tree, "removed since": "null"}
        for key, part in tree.items():
            yield from ({**tree, key: one} for one in broken(part))
    elif isinstance(tree, list):
        yield [*tree, "another type"]
        for i, part in enumerate(tree):
            yield from ([*tree[:i], one, *tree[i + 1 :]] for one in broken(part))
    else:
        yield "another type"
        yield {"removed since": "null"}


def test_files_of_explicit_numbers_have_the_same_bytes():
    today = {name: saved.sha(value) for name, value in saved.steerings().items()}
    assert today == {**today, **FILES["bytes"]}
    # the counter-check: a number that differs in its last digit
    assert saved.sha(rs.Translation([1.0, -2.0, 0.25 + 2**-54])) != FILES["bytes"]["map-translation"]
    assert len(set(FILES["bytes"].values())) == len(FILES["bytes"])


def test_files_of_moments_have_the_same_structure():
    today = {name: saved.structure(value) for name, value in saved.moments().items()}
    assert [name for name, kept in FILES["structures"].items() if not saved.is_kept(kept, today[name])] == []
    for name, kept in FILES["structures"].items():
        assert not any(saved.is_kept(one, today[name]) for one in broken(kept))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_kept_files_still_load_with_equal_content(path, tmp_path):
    loaded = rs.load(path)
    assert saved.sha(loaded) == FILES["read"][path.stem]
    values = {name: saved.facts(value) for name, value in (saved.steerings() | saved.moments()).items()}
    assert [name for name, value in values.items() if saved.same(value, saved.facts(loaded))] == [path.stem]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    (tmp_path / "changed").write_bytes(data)
    with pytest.raises(FileFormatError):
        rs.load(tmp_path / "changed")


def test_no_kept_file_is_missing():
    assert {path.stem for path in PATHS} == FILES["read"].keys() >= set(saved.FROZEN)


def test_documents_keep_their_keys_and_types():
    pytest.importorskip("gguf", reason="exporting a control vector needs the extra repsurgery[lm]")
    today = documents.take()
    lost = [name for name, kept in DOCUMENTS["trees"].items() if not saved.is_kept(kept, today["trees"].get(name))]
    assert lost == [] and set(DOCUMENTS["covered"]) <= set(today["covered"])


def test_a_removed_key_and_a_changed_type_are_noticed_and_an_addition_is_not():
    for kept in DOCUMENTS["trees"].values():
        assert not any(saved.is_kept(one, kept) for one in broken(kept))
        assert saved.is_kept(kept, {**kept, "new": "number"})


def test_every_verb_with_a_document_is_covered_or_says_why_not():
    flags = snapshot.flags()
    verbs = {verb for verb in VERBS if any("--json" in flag for flag in flags[verb].values())}
    covered, others = set(DOCUMENTS["covered"]), set(documents.NEEDS_MORE)
    assert covered | others == verbs and not covered & others
    assert DOCUMENTS["needs_more"] == documents.NEEDS_MORE
