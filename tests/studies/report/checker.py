"""Checks of a page: well-formed, self-contained, accessible."""

import re
from html.parser import HTMLParser

VOID = {"meta", "img", "br", "hr", "link", "input"}


class Checker(HTMLParser):
    """Collects links and text, and notes elements that close in the wrong order or that a screen reader cannot name."""

    def __init__(self):
        super().__init__()
        self.open, self.links, self.tags, self.text, self.faults = [], [], [], [], []
        self.ids, self.headings = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        named = dict(attrs)
        self.ids += [named["id"]] if "id" in named else []
        self.headings += [int(tag[1])] if re.fullmatch("h[1-6]", tag) else []
        if (tag == "img" and not named.get("alt")) or (tag == "th" and named.get("scope") not in ("col", "row")):
            self.faults.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)

    def handle_data(self, data):
        self.text.append(data)


def parse(html):
    checker = Checker()
    checker.feed(html)
    checker.close()
    return checker


def assert_well_formed(parsed):
    assert parsed.open == []
    assert parsed.faults == []
    assert len(set(parsed.ids)) == len(parsed.ids)
    assert parsed.headings[0] == 1 and parsed.headings.count(1) == 1
    assert all(below - above <= 1 for above, below in zip(parsed.headings, parsed.headings[1:], strict=False))


def assert_self_contained(parsed, html):
    assert any(link.startswith("data:") for link in parsed.links)
    assert all(link.startswith(("data:", "#")) for link in parsed.links)
    assert not {"script", "iframe", "link", "object", "embed"} & set(parsed.tags)
    assert not re.search(r"@import|url\(", html)
