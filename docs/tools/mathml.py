"""Formulas as MathML, written at build time: a browser needs neither a script nor a network to show them."""

import importlib.util
import re
from html import unescape
from pathlib import Path
from typing import Any

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', flags=re.DOTALL)
BAR = re.compile(r"<mo>(&#x02016;|&#x0007C;|&#x02225;)</mo>")
"""A bar, which browsers would stretch, and its two sides differently where one of them has an exponent."""
NAME = re.compile(r"(</m[ni]>)?<mo>([a-z]{2,})</mo>")
"""The name of an operator, around which browsers would leave the space of a relation."""
SPACE = '<mspace width="0.17em"/>'
FONT = "assets/STIXTwoMath-Regular.ttf"


def rendered(content: str) -> str:
    r"""Return a page's HTML with its LaTeX formulas as MathML.

    >>> print(rendered(r'<span class="arithmatex">\(x\)</span>'))  # doctest: +ELLIPSIS
    <math ...display="inline"><mrow><mi>x</mi></mrow></math>
    """
    from latex2mathml.converter import convert

    def one(match: re.Match[str]) -> str:
        block = match[2] == "["
        formula = convert(unescape(match[3]).strip(), display="block" if block else "inline")
        formula = BAR.sub(r'<mo stretchy="false">\1</mo>', formula)
        formula = NAME.sub(lambda m: f"{m[1] + SPACE if m[1] else ''}<mi>{m[2]}</mi>{SPACE}", formula)
        return f'<div class="formula">{formula}</div>' if block else formula

    return FORMULA.sub(one, content)


def font_file() -> Path:
    """Return the mathematical font (STIX Two Math, SIL Open Font License) that the package ziamath contains."""
    spec = importlib.util.find_spec("ziamath")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("The font of the formulas is missing: pip install ziamath")
    return Path(spec.origin).parent / "fonts" / Path(FONT).name


def on_files(files: Any, config: Any) -> Any:
    """Add the font."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, FONT, abs_src_path=str(font_file())))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Replace the formulas of a page."""
    return rendered(html)
