"""Open every page of the built site in Chromium, at the width of a desktop and of a phone, and report what is wrong.

``python docs/tools/check_site.py site [--screenshots FOLDER]`` fails if a page logs an error, requests anything from
another host, misses a file, does not fit the width of the screen, or shows a formula or a mark that was not rendered.
"""

import argparse
import functools
import http.server
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
LEFTOVERS = r"/\\\(|\\\[|\$\$|<!-- |&lt;!-- |^:::/m"
"""What a reader must never see: LaTeX, marks of figures and tables, directives of mkdocstrings."""
TOO_WIDE = """() => document.documentElement.scrollWidth - document.documentElement.clientWidth"""
UNRENDERED = f"""() => {{
    const texts = [...document.querySelectorAll('article p, article li, article td, article h1, article h2')];
    const words = texts.filter(e => !e.querySelector('code')).map(e => e.innerText);
    return words.filter(t => {LEFTOVERS}.test(t)).slice(0, 3);
}}"""
CUT_CODE = """() => {
    const blocks = [...document.querySelectorAll('article pre')].flatMap(p => [p, ...p.querySelectorAll('code')]);
    return blocks.filter(b => b.scrollWidth > b.clientWidth + 1).map(b => b.innerText.slice(0, 60)).slice(0, 3);
}"""
COVERED_CODE = """() => {
    const covered = [];
    for (const pre of document.querySelectorAll('article pre')) {
        const bar = pre.parentElement.querySelector('nav, button');
        const code = pre.querySelector('code');
        if (!bar || !code) continue;
        const range = document.createRange();
        range.selectNodeContents(code);
        const button = bar.getBoundingClientRect();
        const hits = [...range.getClientRects()].filter(r => r.width > 0 && r.right > button.left + 1
            && r.left < button.right && r.bottom > button.top + 1 && r.top < button.bottom - 1);
        if (hits.length) covered.push(code.innerText.slice(0, 60));
    }
    return covered.slice(0, 3);
}"""
"""Code whose end is out of sight, or below the button that copies it."""
SUBTRACTED = r"""() => [...document.querySelectorAll('article .doc-section-item > code')].map(e => e.innerText)
    .filter(t => /^[a-z]+( - [a-z0-9]+)+(,|$)/m.test(t)).slice(0, 3)"""
"""Choices such as "nearest-mean" that were read as a difference."""
BROKEN_IMAGES = """() => [...document.images].filter(i => i.complete && i.naturalWidth === 0).map(i => i.src)"""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve ``folder`` on a free port of this machine and yield the address."""
    handler = functools.partial(_Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Log nothing: failed requests are reported by the browser."""


def problems_of(page: Any, address: str, path: str) -> list[str]:
    """Open one page and return what is wrong with it."""
    found: list[str] = []
    listeners = {
        "console": lambda m: found.append(f"console: {m.text}") if m.type in ("error", "warning") else None,
        "pageerror": lambda error: found.append(f"script: {error}"),
        "requestfailed": lambda r: found.append(f"failed: {r.url}"),
        "request": lambda r: None if r.url.startswith((address, "data:", "blob:")) else found.append(f"asks {r.url}"),
    }
    for event, listener in listeners.items():
        page.on(event, listener)
    page.goto(address + path, wait_until="load")
    page.wait_for_timeout(150)
    if (excess := page.evaluate(TOO_WIDE)) > 0:
        found.append(f"{excess} pixels wider than the screen")
    found += [f"not rendered: {text!r}" for text in page.evaluate(UNRENDERED)]
    found += [f"no image: {source}" for source in page.evaluate(BROKEN_IMAGES)]
    found += [f"code cut off: {text!r}" for text in page.evaluate(CUT_CODE)]
    found += [f"code below its button: {text!r}" for text in page.evaluate(COVERED_CODE)]
    found += [f"choices as a difference: {text!r}" for text in page.evaluate(SUBTRACTED)]
    for event, listener in listeners.items():
        page.remove_listener(event, listener)
    return found


FAULTY = """<html><body><article><p>$$x$$</p><img src="absent.png"><div style="width:3000px">wide</div>
<div style="position:relative">
<pre style="width:9em;overflow:auto"><code>a_name = a_function(a_value, another_value)</code></pre>
<nav style="position:absolute;left:2em;top:.8em;width:2em;height:2em">copy</nav></div>
<div class="doc-section-item"><code>nearest - mean, always</code></div></article>
<script>console.error("an error"); fetch("http://127.0.0.2:9/").catch(() => 0); throw Error("thrown")</script>
</body></html>"""
FAULTS = (
    "console",
    "script",
    "asks",
    "failed",
    "not rendered",
    "no image",
    "wider than",
    "cut off",
    "below its",
    "a difference",
)


def control(browser: Any) -> None:
    """Raise unless every kind of problem is found on a page that has all of them: the check itself can fail."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "faulty.html").write_text(FAULTY)
        with served(Path(folder)) as address:
            page = browser.new_page()
            found = problems_of(page, address, "faulty.html")
            page.close()
    missed = [fault for fault in FAULTS if not any(fault in problem for problem in found)]
    if missed:
        raise AssertionError(f"The check is blind to: {', '.join(missed)}. It found {found}.")


def searched(browser: Any, address: str) -> list[str]:
    """Return a problem if the search of the site finds nothing."""
    page = browser.new_page()
    page.goto(address + "index.html", wait_until="load")
    page.locator("[data-md-component=search-query]").fill("certificate")
    try:
        page.wait_for_selector(".md-search-result__item", timeout=20_000)
    except Exception as error:
        return [f"the search finds nothing at {address} ({type(error).__name__})"]
    finally:
        page.close()
    return []


def check(site: Path, screenshots: Path | None) -> int:
    """Print the problems of every page of ``site`` and return their number."""
    from playwright.sync_api import sync_playwright

    pages = sorted(str(path.relative_to(site)) for path in site.rglob("*.html") if "repository" not in path.parts)
    count = 0
    with served(site) as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        control(browser)
        for found in searched(browser, address) + searched(browser, f"{site.resolve().as_uri()}/"):
            print(found)
            count += 1
        for name, (width, height) in WIDTHS.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            for path in pages:
                found = problems_of(page, address, path)
                count += len(found)
                for problem in found:
                    print(f"{name} {path}: {problem}")
                if screenshots is not None:
                    shot = screenshots / name / path.replace("/", "-").replace(".html", ".png")
                    page.screenshot(path=str(shot), full_page=False)
            page.close()
        browser.close()
    print(f"{len(pages)} pages at {len(WIDTHS)} widths: {count} problems")
    return count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("--screenshots", type=Path)
    given = parser.parse_args()
    sys.exit(1 if check(given.site, given.screenshots) else 0)
