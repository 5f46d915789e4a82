"""Bring files of the repository that lie outside docs/ into the site, and lead the pages' links to them.

Pages link to records, decisions and the change log as they lie in the repository, so that the links also work where the
Markdown itself is read. A Markdown file among `PAGES` becomes a page; any other file that a page links to is copied.
"""

import os
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGES = {
    "CHANGELOG.md": "reference/changelog.md",
    "CONTRIBUTING.md": "reference/contributing.md",
    "STYLE.md": "reference/style.md",
    "experiments/README.md": "results/findings.md",
}
"""Files of the repository that are pages of the site."""
INSTEAD = {
    "README.md": "index.md",
    "experiments/results/report.md": "results/index.md",
    "experiments/rivals/report.md": "results/rivals.md",
}
"""Files of the repository whose place another page takes."""
LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\]\()([^)\s#]+)(#[^)\s]*)?\)")


def target(source: str, link: str) -> str | None:
    """Return where ``link`` in the repository file ``source`` leads, as a path from the root; None for other addresses.

    >>> target("docs/guide/price.md", "../../benchmarks/results/kl_price.json")
    'benchmarks/results/kl_price.json'
    >>> target("docs/index.md", "https://example.org") is None
    True
    """
    if re.match(r"[a-z]+:|/", link):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def site_path(path: str) -> str:
    """Return the place of a repository file in the site.

    >>> site_path("docs/guide/price.md"), site_path("experiments/README.md"), site_path("benchmarks/peers.txt")
    ('guide/price.md', 'results/findings.md', 'repository/benchmarks/peers.txt')
    """
    page = (PAGES | INSTEAD).get(path)
    return page or (path[len("docs/") :] if path.startswith("docs/") else f"repository/{path}")


def rewritten(text: str, source: str) -> str:
    """Return the Markdown ``text`` of the repository file ``source`` with its links as the site needs them.

    The site lists no folders and has no other Markdown of the repository: of such links the words remain.
    """
    here = posixpath.dirname(site_path(source))

    def lead(match: re.Match[str]) -> str:
        found = target(source, match[2])
        if found is None or (source.startswith("docs/") and found.startswith("docs/")):
            return match[0]
        if (ROOT / found).is_dir() or (found.endswith(".md") and site_path(found).startswith("repository/")):
            return match[1].lstrip("![").removesuffix("](")
        return f"{match[1]}{posixpath.relpath(site_path(found), here or '.')}{match[3] or ''})"

    fenced = re.split(r"(^```.*?^```)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else LINK.sub(lead, part) for part in fenced)


def outside_files(sources: dict[str, str]) -> set[str]:
    """Return the files outside docs/, other than pages, that the texts ``sources`` (by repository path) link to."""
    found = {target(source, match[2]) for source, text in sources.items() for match in LINK.finditer(text)}
    return {
        path
        for path in found
        if path and site_path(path).startswith("repository/") and not path.endswith(".md") and (ROOT / path).is_file()
    }


def decisions(folder: Path) -> str:
    """Return the page that lists the decision records of ``folder`` by their headings."""
    lines = ["# Decisions", "", "Why the package is built as it is, one decision on each page.", ""]
    for path in sorted(folder.glob("[0-9]*.md")):
        heading = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        lines.append(f"* [{heading}](../adr/{path.name})")
    return "\n".join(lines) + "\n"


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of `PAGES` and every file outside docs/ that some page links to."""
    from mkdocs.structure.files import File

    texts = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    texts |= {path: (ROOT / path).read_text(encoding="utf-8") for path in PAGES}
    for path, page in PAGES.items():
        files.append(File.generated(config, page, content=rewritten(texts[path], path)))
    files.append(File.generated(config, "reference/decisions.md", content=decisions(ROOT / "docs" / "adr")))
    for path in sorted(outside_files(texts)):
        files.append(File.generated(config, site_path(path), abs_src_path=os.fspath(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of a page of docs/ that leave it."""
    if page.file.generated_by is not None:
        return markdown
    return rewritten(markdown, f"docs/{page.file.src_uri}")
