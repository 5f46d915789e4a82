"""The record of the peers' published tests: made with the pinned files, and every failure has its reason."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.published_tests.__main__ import ADAPTERS, RECORD, counts_of, peer_of, problems_of
from benchmarks.published_tests.sdists import sdist_of

PAGE = (Path(__file__).parents[2] / "docs" / "results" / "speed.md").read_text(encoding="utf-8")
PEERS = [peer_of(adapter) for adapter in ADAPTERS]
RECORDS = json.loads(RECORD.read_text(encoding="utf-8"))["peers"]
PAIRS = list(zip(PEERS, RECORDS, strict=True))


@pytest.mark.parametrize(("peer", "record"), PAIRS, ids=ADAPTERS)
class TestRecord:
    def test_the_record_was_made_with_the_pinned_tests(self, peer, record):
        assert (record["peer"], record["sdist"], record["sha256"]) == (peer.name, peer.sdist, peer.sha256)
        assert record["files"] == list(peer.files)

    def test_every_failure_is_explained_and_every_explanation_is_of_a_failure(self, peer, record):
        assert problems_of(peer, record["tests"]) == []
        for test in record["tests"]:
            assert test["reason"] == peer.reason(test["name"])
            assert test["called"] or test["reason"]
            assert (test["outcome"] == "failed") == bool(test["error"])

    def test_the_page_quotes_the_counts_of_the_record(self, peer, record):
        counts = record["counts"]
        assert counts == {**counts_of(record["tests"]), "not ours": counts["not ours"]}
        assert f"{counts['passed']} of {counts['counted']} tests of {peer.name}" in " ".join(PAGE.split())


def test_a_failure_without_reason_and_a_reason_without_failure_are_problems():
    peer = replace(PEERS[0], explained={"test_a::": "why", "test_b::": "why"})
    failed = {"name": "test_c::test", "outcome": "failed", "reason": None}
    passed = {"name": "test_a::test", "outcome": "passed", "reason": "why"}
    first, second, third = problems_of(peer, [failed, passed])
    assert "test_c::test" in first and "explain it" in first
    assert "test_a::test" in second and "Delete the explanation" in second
    assert "test_b::" in third and "Delete the explanation" in third


def test_a_file_with_another_digest_is_refused(tmp_path):
    (tmp_path / PEERS[0].sdist).write_bytes(b"something else")
    with pytest.raises(SystemExit, match="Delete the file"):
        sdist_of(PEERS[0], tmp_path)
