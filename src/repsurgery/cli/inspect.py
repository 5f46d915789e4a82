"""``repsurgery inspect``: shows the contents of a file."""

import re
from pathlib import Path
from typing import Annotated, Any

from repsurgery.cli.output import result_console, say, say_table
from repsurgery.cli.terminal import Table, escape, typer
from repsurgery.studies.common.report.tables import shown_label

__all__ = ["inspect"]

_DIGEST = re.compile("[0-9a-f]{64}")


def inspect(
    file: Annotated[
        str,
        typer.Argument(
            help="A file of a map, gate, steering function, estimator or moments, a name of the zoo, or hub:OWNER/NAME."
        ),
    ],
) -> dict[str, Any]:
    """Show the contents of a file: shapes, classes, the measured effect and the certificate."""
    import repsurgery as rs
    from repsurgery.cli.prices import price_words, prices_of
    from repsurgery.steering.shown import foreign_words
    from repsurgery.studies.common.report.certificates import certificate_table
    from repsurgery.studies.common.report.describe import describe

    value = rs.load(file)
    described = describe(value)
    function = getattr(value, "steering_", value)
    outcome, certificate = (getattr(function, name, None) for name in ("outcome", "certificate"))
    table = Table(title=f"{escape(Path(file).name)}: {described['kind']}", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, text in _flat(described):
        table.add_row(escape(name), escape(text))
    if outcome is not None:
        say(outcome.words())
    if isinstance(function, rs.SteeringFunction) and (words := foreign_words(function)):
        say(words, style="bold yellow")
    result_console().print(table)
    if certificate is not None:
        say_table(certificate_table(certificate))
        if (strength := function.origin.strength) not in (None, 1):
            say(f"The certificate describes the map at strength 1; this file applies it at strength {strength:.3g}.")
    prices = prices_of(function) if isinstance(function, rs.SteeringFunction) else {}
    if prices and (words := price_words(function)):
        say(words)
    return described | ({"outcome": outcome.to_dict()} if outcome else {}) | ({"prices": prices} if prices else {})


def _flat(described: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in described.items():
        if name in ("kind", "certificate") and not prefix.endswith("moments."):
            continue
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{shown_label(name)}.")
        else:
            text = " × ".join(map(str, value)) if prefix.endswith("arrays.") else _words(value)
            rows.append((f"{prefix}{name}", "unknown" if prefix == "origin." and value is None else text))
    return rows


def _words(value: Any) -> str:
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        return f"{value[:16]}…"
    if isinstance(value, list):
        return ", ".join(map(shown_label, value)) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
