"""What all figures share: colours, style, and SVG text drawn by matplotlib without a display."""

import io
from typing import Any
from zlib import crc32

from repsurgery.errors import MissingExtraError

__all__ = ["COLOURS", "GREY", "STYLE", "matplotlib", "method_colour", "svg"]

GREY = "#5b6470"
COLOURS = {
    "base": "#222222",
    "mean": "#2b6c99",
    "mimic": "#c8553d",
    "leace": "#4f8f5b",
    "mimic-oas": "#e59a86",
    "trace": "#8a6fb0",
    "diagonal": "#c29b2f",
    "midsteer": "#3f9c9b",
    "barycenter": "#b0638f",
    "MeanMatching": "#2b6c99",
    "MiMiC": "#c8553d",
    "LEACE": "#4f8f5b",
}
_OTHER_COLOURS = ("#7a4f2a", "#5d5fb0", "#9a9a2e", "#d17fb3", "#3b3b6d", "#2f7d4f", "#a33b5e", "#6b8fb5")
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa3ad",
    "axes.labelcolor": "#333a42",
    "xtick.color": GREY,
    "ytick.color": GREY,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "svg.hashsalt": "repsurgery",  # equal records give equal bytes
}


def method_colour(name: str) -> str:
    """Return the colour of a method; a method without a colour of its own has one that depends on its name only."""
    return COLOURS.get(name, _OTHER_COLOURS[crc32(name.encode()) % len(_OTHER_COLOURS)])


def svg(figure: Any) -> str:
    """Return a figure as SVG text, without date and creator: neither belongs to the result."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]


def matplotlib() -> Any:
    """Return matplotlib; figures are made without pyplot, which would keep them and choose a display."""
    try:
        import matplotlib
        import matplotlib.figure
        import matplotlib.ticker
    except ImportError as error:
        raise MissingExtraError("Figures need matplotlib: pip install 'repsurgery[report]'") from error
    return matplotlib
