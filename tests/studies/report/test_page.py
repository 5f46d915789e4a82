import re

import pytest

from repsurgery.studies.demo.page import page, write_report
from tests.studies.report.checker import parse
from tests.studies.report.records import small_record

pytest.importorskip("matplotlib", reason="figures need the extra repsurgery[report]")


@pytest.fixture(scope="module")
def html():
    return page(small_record())


@pytest.fixture(scope="module")
def parsed(html):
    return parse(html)


def test_every_element_is_closed_in_order(parsed):
    assert parsed.open == []
    assert set(parsed.faults) <= {"th"}  # headings of this page have no scope


def test_the_page_needs_nothing_from_elsewhere(parsed, html):
    assert parsed.links
    assert all(link.startswith("data:") for link in parsed.links)
    assert not {"script", "iframe", "link", "object", "embed"} & set(parsed.tags)
    assert not re.search(r"@import|url\(", html)


def test_model_output_is_shown_and_never_interpreted(parsed, html):
    assert "<script>" not in html
    assert any("alert('x')" in text for text in parsed.text)


def test_the_report_says_what_was_run(parsed):
    text = " ".join(parsed.text)
    for words in ("Q4_1 dequantised", "words 1, SHA-256 00", "MiMiC, selective", "held out", "Content note", "python"):
        assert words in text
    assert "details" in parsed.tags


def test_equal_records_give_equal_bytes(html):
    assert page(small_record()) == html


def test_the_report_replaces_an_older_one(tmp_path):
    path = write_report(small_record(), tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "index.html"
    assert write_report(small_record(), path.parent) == path
    assert [p.name for p in path.parent.iterdir()] == ["index.html"]
