"""``repsurgery doctor``: what is installed, what is missing, and what does not work."""

from typing import Any

from repsurgery.cli.output import current_form, say, write_document
from repsurgery.cli.show import in_bytes
from repsurgery.cli.terminal import typer

__all__ = ["doctor"]

SHOWN = 4
"""Packages of an extra that are named on the screen; the document names all of them."""


def doctor() -> dict[str, Any]:
    """Check Python, packages, models and folders: one line for each problem, with its remedy."""
    from repsurgery.cli.checkup import examine

    found = examine()
    document = found.document()
    for heading, lines in _sections(document).items():
        say(heading, style="bold")
        for line in lines:
            say(f"  {line}")
    for one in found.problems:
        say(f"Problem: {one.problem} {one.remedy}", style="bold red")
    if not found.problems:
        say("No problem was found.", style="bold")
        return document
    if current_form().json:
        write_document(document)
    raise typer.Exit(1)


def _sections(facts: dict[str, Any]) -> dict[str, list[str]]:
    torch, memory = facts["torch"], facts["memory"]
    free = "unknown" if memory["free_bytes"] is None else in_bytes(memory["free_bytes"])
    versions = ", ".join(f"{name} {version}" for name, version in facts["packages"].items() if name != "torch")
    built = "torch is not installed"
    if torch:
        count = f"{torch['threads']} thread{'s' * (torch['threads'] != 1)}"
        built = f"torch {torch['version']}, {torch['build']} build, {count}, devices: {', '.join(torch['devices'])}"
    return {
        "Installation": [
            f"repsurgery {facts['repsurgery']}, Python {facts['python']}, {facts['platform']}",
            versions,
            built,
            f"{memory['cores']} cores, {free} of memory free; the Hugging Face hub is {facts['hub']}",
        ],
        "Extras": [_extra(name, one) for name, one in facts["extras"].items()],
        "Embedded models": [_model(name, one) for name, one in facts["models"].items()] or ["They need the extra lm."],
        "Folders": [_folder(name, one) for name, one in facts["folders"].items()] + [_data(facts["data"])],
    }


def _extra(name: str, one: dict[str, Any]) -> str:
    if one["installed"]:
        return f"{name}: installed"
    first, more = one["missing"][:SHOWN], len(one["missing"]) - SHOWN
    others = f" and {more} more" if more > 0 else ""
    return f"{name}: {one['install']} (missing: {', '.join(first)}{others})"


def _model(name: str, one: dict[str, Any]) -> str:
    if one["converted"]:
        return f"{name}: in the cache, {in_bytes(one['bytes'])}"
    if one["installed"]:
        return f"{name}: installed"
    return f"{name}: not installed; repsurgery plan --model {name} prints the command that installs it"


def _folder(name: str, one: dict[str, Any]) -> str:
    holds = "" if one["bytes"] is None else f", holds {in_bytes(one['bytes'])}"
    writable = "writable" if one["writable"] else "not writable"
    return f"{name}: {one['path']}, {writable}{holds}, {in_bytes(one['free_bytes'])} free"


def _data(one: dict[str, Any]) -> str:
    if not one["folder"]:
        return "data: REPSURGERY_DATA is not set; only studies on published data need it"
    return f"data: {one['folder']}, with {', '.join(one['present']) or 'none of the published data'}"
