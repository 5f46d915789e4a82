import re

import pytest

from repsurgery.studies.page import REPORT_FILES, write_report
from tests.studies.report.checker import parse
from tests.studies.report.records import small_record

pytest.importorskip("matplotlib", reason="figures need the extra repsurgery[report]")


def page(folder):
    return write_report(small_record(), folder).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    return page(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def parsed(html):
    return parse(html)


def test_every_element_is_closed_in_order(parsed):
    assert parsed.open == []
    assert parsed.faults == []


def test_the_page_needs_nothing_from_elsewhere(parsed, html):
    assert parsed.links
    assert all(link.startswith(("data:", "#")) for link in parsed.links)
    assert not {"script", "iframe", "link", "object", "embed"} & set(parsed.tags)
    assert not re.search(r"@import|url\(", html)


def test_model_output_is_shown_and_never_interpreted(parsed, html):
    assert "<script>" not in html
    assert any("alert('x')" in text for text in parsed.text)


def test_the_report_says_what_was_run(parsed):
    text = " ".join(parsed.text)
    for words in ("Q4_1 dequantised", "SHA-256 00", "mimic selective", "held out", "Content warning", "python"):
        assert words in text
    assert "details" in parsed.tags


def test_another_concept_is_not_held_against_published_figures(parsed):
    assert "ublished" not in " ".join(parsed.text)


def test_equal_records_give_equal_bytes(html, tmp_path):
    assert page(tmp_path) == html


def test_the_report_replaces_an_older_one(tmp_path):
    path = write_report(small_record(), tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "index.html"
    assert write_report(small_record(), path.parent) == path
    names = [p for p in path.parent.iterdir() if not any(p.match(pattern) for pattern in REPORT_FILES)]
    assert names == []
