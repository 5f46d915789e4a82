"""The reference of the Python interface: public names, read from the sources without importing them.

A page of docs/reference lists names by topic, ``<!-- names: MeanMatching lm.steer -->``, and mkdocstrings renders each
of them. ``<!-- other names: repsurgery.lm -->`` stands for the public names of a package that no page lists, so that a
new public name is always in the reference.
"""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LISTED = re.compile(r"<!-- names: ([^>]*?) -->")
OTHERS = re.compile(r"<!-- other names: ([\w.]+) -->")


@cache
def public_names(package: str) -> dict[str, str]:
    """Return the public names of ``package``, each with the module that defines it.

    The stub lists them where there is one, else ``__all__``. Submodules are left out.
    """
    folder = ROOT / "src" / package.replace(".", "/")
    file = next(f for f in (folder / "__init__.pyi", folder / "__init__.py", folder.with_suffix(".py")) if f.exists())
    tree = ast.parse(file.read_text(encoding="utf-8"))
    listed = next((ast.literal_eval(node.value) for node in tree.body if _is_list(node)), None)
    found = {}
    for node in tree.body:
        for alias in node.names if isinstance(node, ast.ImportFrom) and node.module else ():
            module = f"{package}.{node.module}" if node.level else str(node.module)
            if module.startswith("repsurgery") and (file.suffix == ".pyi" or alias.name in (listed or ())):
                found[alias.asname or alias.name] = _home(module, alias.name)
    return {name: found[name] for name in sorted(found, key=str.lower)}


def _is_list(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == ["__all__"]


def _home(module: str, name: str) -> str:
    """Return the module that defines ``name``, following packages that pass it on."""
    folder = ROOT / "src" / module.replace(".", "/")
    if folder.is_dir() and name in (names := public_names(module)):
        return names[name]
    return module


def block(name: str) -> str:
    """Return what mkdocstrings renders for a public name such as ``lm.steer`` or ``MeanMatching``."""
    room, _, short = name.rpartition(".")
    package = f"repsurgery.{room}" if room else "repsurgery"
    heading = name if room else f"rs.{name}"
    return f"::: {public_names(package)[short]}.{short}\n    options:\n      heading: {heading}\n"


def expanded(markdown: str, listed_anywhere: frozenset[str]) -> str:
    """Return a page with its lists of names replaced by what mkdocstrings renders."""

    def others(match: re.Match[str]) -> str:
        room = match[1].removeprefix("repsurgery").lstrip(".")
        names = [f"{room}.{name}" if room else name for name in public_names(match[1])]
        return "\n".join(block(name) for name in names if name not in listed_anywhere)

    markdown = LISTED.sub(lambda match: "\n".join(map(block, match[1].split())), markdown)
    return OTHERS.sub(others, markdown)


def listed_names() -> frozenset[str]:
    """Return the names that the pages of docs/reference list by topic."""
    pages = (ROOT / "docs" / "reference").glob("*.md")
    return frozenset(name for page in pages for found in LISTED.findall(page.read_text()) for name in found.split())


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put the names into the pages of the reference."""
    return expanded(markdown, listed_names()) if page.file.src_uri.startswith("reference/") else markdown


PROMISES = re.compile(r'(<details class="guarantees"[^>]*>\s*<summary>[^<]*</summary>\s*)<p>(.*?)</p>', flags=re.DOTALL)


def listed(promises: str) -> str:
    r"""Return the sentences of a section Guarantees as a list, with the tests that they name set apart.

    >>> listed("It holds (test_a).\nSo does this (test_b).").count('<span class="test">')
    2
    """
    one_line = " ".join(promises.split())
    tests = re.sub(r"\(([^()]*test_\w+[^()]*)\)", r'<span class="test">(\1)</span>', one_line)
    sentences = re.split(r"(?<=</span>\.) (?=[A-Z<`])", tests)
    return "<ul>" + "".join(f"<li>{sentence}</li>" for sentence in sentences) + "</ul>"


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Show guarantees as lists."""
    return PROMISES.sub(lambda found: found[1] + listed(found[2]), html)
