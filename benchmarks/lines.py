"""What a script reports: one line per figure, with the target it has to meet or none."""

import math
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Line", "Settings", "at_least", "at_most", "fact", "show"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How often to measure, and whether at a size that only proves the scripts run."""

    repeats: int | None = None
    quick: bool = False

    def rounds(self, d: int) -> int:
        """Return the number of interleaved rounds at ``d`` features."""
        if self.repeats is not None:
            return self.repeats
        return 2 if self.quick else 5 if d < 1024 else 3


@dataclass(frozen=True, slots=True)
class Line:
    """One figure: ``value`` in ``unit``, held against ``target`` where there is one."""

    what: str
    value: float
    unit: str
    target: str = ""
    met: bool | None = None
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values; NaN and infinity, which JSON lacks, as text."""
        plain = asdict(self)
        if not math.isfinite(self.value):
            plain["value"] = str(self.value)
        return plain


def at_least(what: str, value: float, bound: float, unit: str = "x", note: str = "") -> Line:
    """Return a figure that has to reach ``bound``."""
    return Line(what, value, unit, f">= {bound:g}{_spaced(unit)}", bool(value >= bound), note)


def at_most(what: str, value: float, bound: float, unit: str = "", note: str = "") -> Line:
    """Return a figure that must not exceed ``bound``."""
    return Line(what, value, unit, f"<= {bound:g}{_spaced(unit)}", bool(value <= bound), note)


def fact(what: str, value: float, unit: str = "", note: str = "") -> Line:
    """Return a figure without a target."""
    return Line(what, value, unit, note=note)


def show(title: str, lines: list[Line], *, judged: bool) -> None:
    """Print one aligned table."""
    rows = [("", "measured", "target", "", "")]
    for line in lines:
        verdict = "" if line.met is None or not judged else "met" if line.met else "MISSED"
        rows.append((line.what, _figure(line), line.target, verdict, line.note))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    print(f"\n{title}")
    for what, measured, target, verdict, note in rows:
        cells = (what.ljust(widths[0]), measured.rjust(widths[1]), target.rjust(widths[2]), verdict.ljust(widths[3]))
        print("  ".join((*cells, note)).rstrip())


def _spaced(unit: str) -> str:
    return unit if unit in ("", "x") else f" {unit}"


def _figure(line: Line) -> str:
    if not math.isfinite(line.value):
        return str(line.value)
    match line.unit:
        case "x":
            return f"{line.value:.3g}x" if line.value < 1 else f"{line.value:.2f}x"
        case "s":
            return f"{line.value:.3f} s"
        case "us" | "ms" | "%":
            return f"{line.value:.3g} {line.unit}"
        case "MiB" | "tokens/s" | "thousand rows/s":
            return f"{line.value:.1f} {line.unit}"
    return f"{line.value:.1e}"
