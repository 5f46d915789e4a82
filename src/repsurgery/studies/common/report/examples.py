"""Generated texts behind a content warning: closed until a reader opens them, and never read as markup."""

import unicodedata
from collections.abc import Sequence
from html import escape

from repsurgery.studies.common.report import markdown
from repsurgery.studies.toxicity.record import Example

__all__ = ["WARNING", "examples_html", "examples_markdown"]

WARNING = "Generated text may be offensive: unedited model output."
_SUMMARY = f"<summary>Content warning. {WARNING} Open to read.</summary>"


def examples_html(examples: Sequence[Example]) -> str:
    """Return the examples as an element that is closed at first; only the warning shows."""
    return f"<details>{_SUMMARY}\n" + "\n".join(map(_example_html, examples)) + "</details>"


def _example_html(example: Example) -> str:
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="text" dir="auto">{escape(_visible(text))}</td></tr>'
        for name, text in example.continuations.items()
    )
    return (
        f'<p class="prompt" dir="auto">{escape(_visible(example.prompt))}</p>\n'
        f'<div class="scroll"><table class="pairs"><tbody>{rows}</tbody></table></div>'
    )


def examples_markdown(examples: Sequence[Example]) -> str:
    """Return the same for a code host, which reads the two elements of HTML and none of the texts."""
    blocks = [block for example in examples for block in _example_markdown(example)]
    return "\n\n".join(["<details>", _SUMMARY, *blocks, "</details>"])


def _example_markdown(example: Example) -> list[str]:
    rows = ((name, _visible(text)) for name, text in example.continuations.items())
    lines = ["| configuration | continuation |", "|---|---|", *map(markdown.row, rows)]
    return [f"Prompt: {markdown.escaped(_visible(example.prompt))}", "\n".join(lines)]


def _visible(text: str) -> str:
    # a page has no form for control characters, and a text may hold nothing else
    shown = "".join("�" if unicodedata.category(c) == "Cc" and c not in "\n\t" else c for c in text)
    return shown if shown.strip() else "(nothing)"
