"""The sources of the documentation site: complete, linked, and drawn from the records. `make docs` builds it."""

import doctest
import importlib
import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from tests.contract.test_public import ROOMS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md"))
REFERENCE = "\n".join(path.read_text() for path in (DOCS / "reference").glob("*.md"))


@pytest.fixture
def tool(monkeypatch):
    """Return a function that imports a tool of the site, as MkDocs does: with the folder of the tools on the path."""
    monkeypatch.syspath_prepend(DOCS / "tools")
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(DOCS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.mark.parametrize("name", ["commands", "figures", "names", "repository"])
def test_examples_of_the_tools_run(tool, name):
    assert doctest.testmod(tool(name)).failed == 0


@pytest.mark.parametrize("room", ROOMS)
def test_the_reference_renders_every_public_name(tool, room):
    """`lm.steer` is rendered from the module that defines it, and so is every other name."""
    names = tool("names")
    rendered = names.expanded(REFERENCE, names.listed_names())
    for name in ROOMS[room].__all__:
        value = getattr(ROOMS[room], name)
        if not isinstance(value, type(sys)):
            home = re.escape(getattr(value, "__module__", "")) if callable(value) else r"[\w.]+"
            assert re.search(rf"^::: {home}\.{name}$", rendered, flags=re.MULTILINE), name


def test_a_new_public_name_is_rendered_without_being_listed(tool):
    names = tool("names")
    assert "::: repsurgery.lm.steer.steer.steer\n" in names.expanded("<!-- other names: repsurgery.lm -->", frozenset())
    assert "steer.steer.steer\n" not in names.expanded("<!-- other names: repsurgery.lm -->", frozenset({"lm.steer"}))


def test_the_command_line_is_documented_whole(tool):
    from typer.main import get_command

    from repsurgery.cli.app import VERBS, app

    commands = tool("commands")
    group = get_command(app)
    context = group.make_context("repsurgery", [], resilient_parsing=True)
    text = commands.reference(group, context)
    assert {f"## repsurgery {verb}" for verb in VERBS} <= set(text.splitlines())
    for _, command, below in commands.walk(group, context):
        for parameter in command.get_params(below):
            if not getattr(parameter, "hidden", False) and parameter.name != "help":
                assert any(opt in text for opt in parameter.opts), parameter.name
    assert commands.MARK in (DOCS / "reference" / "cli.md").read_text()


def nav_pages(entry):
    """Yield the pages that a part of the navigation names."""
    if isinstance(entry, str):
        yield entry
    else:
        for inner in entry.values() if isinstance(entry, dict) else entry:
            yield from nav_pages(inner)


def test_every_page_is_in_the_navigation(tool):
    repository = tool("repository")
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert settings["strict"] and settings["theme"]["font"] is False
    written = {str(path.relative_to(DOCS)) for path in PAGES if path.parent.name != "adr"}
    generated = {*repository.PAGES.values(), "reference/decisions.md"}
    assert set(nav_pages(settings["nav"])) == written | generated


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_links_lead_to_files(tool, page):
    repository = tool("repository")
    source = str(page.relative_to(ROOT))
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for link in repository.LINK.finditer(text):
        found = repository.target(source, link[2])
        if found is not None and found.removeprefix("docs/") not in repository.PAGES.values():
            assert (ROOT / found).is_file(), f"{source} links to {found}, which does not exist"


def test_links_out_of_the_docs_lead_into_the_site(tool):
    rewritten = tool("repository").rewritten
    assert rewritten("[a](../../experiments/README.md#b)", "docs/guide/x.md") == "[a](../results/findings.md#b)"
    assert rewritten("[a](../../benchmarks/p.txt)", "docs/guide/x.md") == "[a](../repository/benchmarks/p.txt)"
    assert rewritten("[a](price.md)", "docs/guide/x.md") == "[a](price.md)"
    assert rewritten("[a](rivals/report.md)", "experiments/README.md") == "[a](rivals.md)"
    assert rewritten("[a](scorers)", "experiments/README.md") == "a"  # the site lists no folders
    assert rewritten("[a](../.github/NOTES.md)", "docs/guide.md") == "a"


def test_every_figure_and_table_is_in_a_record(tool):
    figures = tool("figures")
    shown = {mark for page in PAGES for mark in figures.marks(page.read_text(), "figure")}
    assert {study for study, _ in shown} >= {"price", "rivals", "dialect", "bios", "speed"}
    for study, name in sorted(shown):
        svg, caption = figures.drawing(study, name)
        assert svg.startswith("<svg") and caption
    tables = {mark for page in PAGES for mark in figures.marks(page.read_text(), "table")}
    for study, title in tables:
        assert figures.table(study, title).count("\n|") > 1
    with pytest.raises(KeyError, match="it has"):
        figures.drawing("paper", "absent")


def test_bars_follow_the_record(tool, tmp_path, monkeypatch):
    speed = tool("speed")
    bar = speed.FITTING[0]
    committed = json.loads((speed.RECORDS / f"{bar.record}.json").read_text())
    [line] = [line for line in committed["scripts"][bar.script] if line["what"] == bar.what]
    before, _ = speed.drawing("fitting")
    assert speed.value(bar) == line["value"]
    for record in {bar.record for bar in speed.FITTING}:
        (tmp_path / f"{record}.json").write_text((speed.RECORDS / f"{record}.json").read_text())
    line["value"] *= 2
    (tmp_path / f"{bar.record}.json").write_text(json.dumps(committed))
    monkeypatch.setattr(speed, "RECORDS", tmp_path)
    assert speed.value(bar) == line["value"]
    assert speed.drawing("fitting")[0] != before
    line["what"] = "renamed"
    (tmp_path / f"{bar.record}.json").write_text(json.dumps(committed))
    with pytest.raises(KeyError, match="0 lines"):
        speed.value(bar)


def test_parameter_lists_have_the_defaults_of_their_signatures(tool):
    """Every public parameter that is documented; choices in quotation marks stay as they were written."""
    griffe = pytest.importorskip("griffe")
    extension = tool("parameters").Parameters()
    how = {"search_paths": [ROOT / "src"], "docstring_parser": "numpy", "docstring_options": {"warnings": False}}
    plain, corrected = (
        griffe.load("repsurgery", extensions=griffe.load_extensions(*using), **how) for using in ([], [extension])
    )

    def wrong(package):
        found = []
        for path in ("steering.mimic.MiMiC", "steering.leace.LEACE", "steering.mean_matching.MeanMatching"):
            item = package[path]
            (section,) = (s for s in item.docstring.parsed if s.kind is griffe.DocstringSectionKind.parameters)
            for one in section.value:
                if one.name in item.parameters and str(one.value) != str(item.parameters[one.name].default):
                    found.append(f"{path} {one.name} {one.value}")
                found += [f"{path} {one.annotation}"] if "nearest - mean" in str(one.annotation) else []
        return found

    assert wrong(corrected) == []
    assert wrong(plain)  # what Griffe reads by itself
