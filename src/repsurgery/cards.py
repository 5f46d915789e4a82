"""`Card`: what an object says of itself on one screen, as text and as HTML; `Shown`: objects that show their card."""

import html
import textwrap
import unicodedata
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["Card", "Shown", "change", "count", "line", "listed", "name_of", "number", "plain", "shortened", "values"]

MOST_LINES = 30
MOST_CHARACTERS = 2000
WIDTH = 88
_LONGEST = {"title": 600, "verdict": 640, "name": 28, "value": 320}
"""The largest numbers of characters of the parts of a card."""
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that a terminal interprets or hides: control and format characters, lone surrogates, and
separators of lines and paragraphs."""


@dataclass(frozen=True, slots=True)
class Card:
    """A title, what it comes down to in words, and the facts behind it.

    Attributes
    ----------
    title, verdict : str
    facts : tuple of (name, value)

    Guarantees
    ----------
    The text has at most 30 lines and 2,000 characters, whatever the labels, and no character that acts on a terminal
    (test_every_object_shows_itself_on_one_screen, test_no_label_acts_on_the_terminal_or_the_page).
    """

    title: str
    verdict: str = ""
    facts: tuple[tuple[str, str], ...] = ()

    def text(self) -> str:
        """Return the card as lines of text."""
        lines = _wrapped(shortened(plain(self.title), _LONGEST["title"]))
        if self.verdict:
            lines += _wrapped(shortened(line(self.verdict), _LONGEST["verdict"]))
        names = [shortened(line(name), _LONGEST["name"]) for name, _ in self.facts]
        width = max(map(len, names), default=0)
        left = len(self.facts)
        for name, (_, value) in zip(names, self.facts, strict=True):
            added = _wrapped(f"  {name:<{width}}  {shortened(line(value), _LONGEST['value'])}", indent=width + 4)
            more = [f"  … and {left - 1:,} more"] if left > 1 else []
            if not _fits([*lines, *added, *more]):
                return "\n".join([*lines, f"  … and {left:,} more"])
            lines, left = [*lines, *added], left - 1
        return "\n".join(lines)

    def html(self) -> str:
        """Return the card as HTML, every part escaped."""
        title, verdict = (_escaped(getattr(self, part), part) for part in ("title", "verdict"))
        cell = "text-align: left; vertical-align: top; padding: 1px 12px 1px 0"
        rows = [
            f'<tr><th style="{cell}; font-weight: 600">{_escaped(name, "name")}</th>'
            f'<td style="{cell}">{_escaped(value, "value")}</td></tr>'
            for name, value in self.facts
        ]
        table = f'<table style="border-collapse: collapse">{"".join(rows)}</table>' if rows else ""
        said = f'<div style="margin: 2px 0 6px">{verdict}</div>' if verdict else ""
        return f'<div class="repsurgery-card"><div><strong>{title}</strong></div>{said}{table}</div>'


class Shown:
    """Mixin: an object whose ``repr`` and HTML form are its card, also where a subclass is a dataclass."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # a dataclass writes a repr of its own, with every number, unless its class defines one
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]

    @abstractmethod
    def _card(self) -> Card:
        """Return what this object says of itself."""

    def __repr__(self) -> str:
        return self._card().text()

    def _repr_html_(self) -> str:
        return self._card().html()


def _wrapped(text: str, *, indent: int = 0) -> list[str]:
    options: dict[str, Any] = {"subsequent_indent": " " * indent, "drop_whitespace": True, "break_on_hyphens": False}
    return [part for row in text.split("\n") for part in textwrap.wrap(row, WIDTH, **options) or [""]]


def _fits(lines: list[str]) -> bool:
    return len(lines) <= MOST_LINES and sum(map(len, lines)) + len(lines) <= MOST_CHARACTERS


def _escaped(text: str, part: str) -> str:
    return html.escape(shortened(plain(text), _LONGEST[part])).replace("\n", "<br>")


def plain(text: str) -> str:
    """Return ``text`` with control and format characters as visible escapes, so that they do not act on a terminal.

    Newlines and tabs stay.

    Guarantees
    ----------
    No escape sequence in a label, path or text reaches the terminal (test_no_command_lets_a_label_steer_the_terminal).
    """
    return "".join(
        c if c in "\n\t" or unicodedata.category(c) not in _INVISIBLE else c.encode("unicode_escape").decode()
        for c in text
    )


def line(text: str) -> str:
    """Return ``text`` on one line: `plain`, with newlines and tabs as visible escapes too."""
    return plain(text).replace("\n", "\\n").replace("\t", "\\t")


def shortened(text: str, most: int) -> str:
    """Return ``text``, or its beginning and end around an ellipsis where it has more than ``most`` characters."""
    if len(text) <= most:
        return text
    head = (2 * most) // 3
    return f"{text[:head]}…{text[len(text) - (most - head - 1) :]}"


def name_of(label: Any, most: int = 32) -> str:
    """Return a label as Python writes it, shortened; numbers of NumPy are written as plain ones."""
    value = label.item() if hasattr(label, "item") else label
    return line(repr(shortened(value, most) if isinstance(value, str) else value))


def listed(parts: Iterable[str], most: int = 6) -> str:
    """Return a list of at most ``most`` parts, and how many more there are."""
    found = list(parts)
    shown = ", ".join(found[:most])
    return shown if len(found) <= most else f"{shown}, … and {len(found) - most:,} more"


def values(labels: Iterable[Any], most: int = 6) -> str:
    """Return a list of labels, see `listed`."""
    found = list(labels)
    return listed([*map(name_of, found[:most]), *[""] * max(len(found) - most, 0)], most)


def count(n: float, what: str, plural: str | None = None) -> str:
    """Return a number of things, as in "1 row" and "2,000 rows"."""
    size = f"{n:,}" if isinstance(n, int) else f"{n:,.4g}" if abs(n) < 1000 else f"{n:,.0f}"
    return f"{size} {what if n == 1 else plural or f'{what}s'}"


def number(value: float | None) -> str:
    """Return a number with three digits, and "not measured" for None."""
    return "not measured" if value is None else f"{value:.3g}"


def change(before: float | None, after: float | None) -> str:
    """Return a number before and after, as in "4.21 → 3.1e-15"."""
    return f"{number(before)} → {number(after)}"
