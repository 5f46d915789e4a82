"""The reference of the command line, written at build time from the commands themselves."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

PAGE = "reference/cli.md"
MARK = "<!-- every command -->"
"""What the page has in place of the commands."""


def walk(command: Any, context: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, command and context of every command below the group ``command``."""
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        below = type(context)(child, info_name=name, parent=context)
        yield below.command_path, child, below
        if hasattr(child, "list_commands"):
            yield from walk(child, below)


def reference(command: Any, context: Any) -> str:
    """Return the Markdown of every command below the group ``command``."""
    return "\n".join(section(path, child, below) for path, child, below in walk(command, context))


def section(path: str, command: Any, context: Any) -> str:
    """Return the Markdown of one command: what it does, how it is called, and its parameters by panel."""
    shown = [p for p in command.get_params(context) if not getattr(p, "hidden", False) and p.name != "help"]
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    lines = [f"## {path}", "", help_text(command.help), "", "```", usage, "```", ""]
    panels: dict[str, list[Any]] = {}
    for parameter in shown:
        kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
        panels.setdefault(getattr(parameter, "rich_help_panel", None) or kind, []).append(parameter)
    for panel, parameters in panels.items():
        lines += [f"| {panel.lower()} | meaning |", "|---|---|", *(row(p, context) for p in parameters), ""]
    return "\n".join(lines)


def row(parameter: Any, context: Any) -> str:
    """Return the row of one parameter: its names and value, and its help with the default."""
    names, about = parameter.get_help_record(context)
    facts = re.findall(r"\[((?:default|required|env var|x?[<>]|\d)[^\]]*)\]", about)
    text = re.sub(r"\s*\[(?:default|required|env var|x?[<>]|\d)[^\]]*\]", "", about)
    stated = " ".join([help_text(text), *(f"*{fact[0].upper() + fact[1:]}.*" for fact in map(bare, facts))])
    plain = re.sub(r"<list\[(\w+)\]>", r"<\1>", " ".join(names.split()))
    return f"| `{plain}` | {' '.join(stated.split()).replace('|', '&#124;')} |"


def bare(fact: str) -> str:
    """Return a fact without the parentheses of a default that is described in words.

    >>> bare("default: (no limit)"), bare("default: 0.1"), bare("required")
    ('default: no limit', 'default: 0.1', 'required')
    """
    return re.sub(r"\((.*)\)$", r"\1", fact)


def help_text(text: str | None) -> str:
    """Return a help text as Markdown: marks of Rich and of Typer are removed, and words in < > stay visible."""
    clean = re.sub(r"\[/?[a-z# ]+\](?!\()", "", inspect.cleandoc(text or "").partition("\f")[0])
    return re.sub(r"<(?=[A-Za-z])", "&lt;", clean.replace("\b\n", ""))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put the commands into the page of the command line."""
    if page.file.src_uri != PAGE:
        return markdown
    from typer.main import get_command

    from repsurgery.cli.app import app

    group = get_command(app)
    context = group.make_context("repsurgery", [], resilient_parsing=True)
    return markdown.replace(MARK, reference(group, context))
