"""Pages and Markdown from Jinja2 templates; text from records is always escaped."""

import base64
import re
import unicodedata
from functools import cache
from typing import Any

from repsurgery.errors import MissingExtraError

__all__ = ["markdown_item", "markdown_text", "printable", "render"]


def render(template: str, **values: Any) -> str:
    """Return the text of a template in ``templates``, filled in with ``values``.

    Parameters
    ----------
    template : str
        The name of the file; it ends in ``.html.jinja`` or ``.md.jinja``, which decides how values are escaped.
    **values
        The variables of the template.

    Guarantees
    ----------
    Values are shown and never interpreted as markup (test_text_of_a_record_is_shown_and_never_interpreted).
    """
    return str(_templates(markdown=template.endswith(".md.jinja")).get_template(template).render(values))


@cache
def _templates(*, markdown: bool) -> Any:
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError as error:
        raise MissingExtraError("Pages need Jinja2: pip install 'repsurgery[report]'") from error

    def item(text: str) -> Markup:
        return Markup(markdown_item(text))

    def escaped(value: Any) -> Markup:
        return value if isinstance(value, Markup) else Markup(markdown_text(str(value)))

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__),
        autoescape=True,
        # autoescaping is for HTML; in Markdown every value passes through this function instead
        finalize=escaped if markdown else None,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"data_uri": _data_uri, "markdown_item": item, "visible": _visible}
    return templates


def markdown_text(text: str) -> str:
    """Return ``text`` on one line, with every character escaped that Markdown or HTML would interpret."""
    line = " ".join(text.split()).replace("\\", "\\\\")
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # square brackets make a link only before a parenthesis or another bracket; intervals stay legible
    return re.sub(r"\](?=[(\[:])", r"\\]", re.sub(r"([`*_|~$])", r"\\\1", line))


def markdown_item(text: str) -> str:
    """Return ``text`` as an item of a list; a first character that would start a heading or a list is escaped."""
    return "- " + re.sub(r"^(\d*)([#+\-=.)])", r"\1\\\2", markdown_text(text))


def _data_uri(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def printable(text: str) -> str:
    """Return ``text`` with control characters and lone surrogates replaced; newlines and tabs stay."""
    return "".join("�" if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t" else c for c in text)


def _visible(text: str) -> str:
    """Return ``text`` as `printable` does, and a placeholder for a text that is empty or only spaces."""
    shown = printable(text)
    return shown if shown.strip() else "(nothing)"
