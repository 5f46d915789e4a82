"""The files of the report that a test module writes into its fixture ``folder``."""

import pytest

from tests.studies.report.checker import parse


@pytest.fixture(scope="module")
def html(folder):
    return (folder / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def text(folder):
    return (folder / "report.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def parsed(html):
    return parse(html)
