"""What all figures share: matplotlib, which the extra ``report`` installs, colours and style."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from repsurgery.errors import MissingExtraError, ParameterError

__all__ = ["COLOURS", "GREY", "INK", "SPARE_COLOURS", "STYLE", "axes", "matplotlib"]

GREY = "#5b6470"
INK = "#20262d"
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
SPARE_COLOURS = ("#7a4f2a", "#5d5fb0", "#9a9a2e", "#d17fb3", "#3b3b6d")
"""Colours of methods without an entry in ``COLOURS``, and of lines that would look like another one."""
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa3ad",
    "axes.labelcolor": "#333a42",
    "xtick.color": GREY,
    "ytick.color": GREY,
    "text.parse_math": False,  # a dollar sign in a name does not start a formula
    "svg.hashsalt": "repsurgery",  # equal records give equal bytes
}


def matplotlib() -> Any:
    """Return matplotlib; reports make figures without pyplot, which would keep them and choose a display."""
    try:
        import matplotlib
        import matplotlib.figure
        import matplotlib.ticker
    except ImportError as error:
        raise MissingExtraError("Figures need matplotlib: pip install 'repsurgery[report]'") from error
    return matplotlib


@contextmanager
def axes(ax: Any, *, size: tuple[float, float]) -> Iterator[Any]:
    """Yield ``ax``, or the axes of a new figure of ``size`` in inches, as pyplot shows it; the style holds inside."""
    mpl = matplotlib()
    if ax is not None and not hasattr(ax, "plot"):
        raise ParameterError(f"ax is a {type(ax).__name__}; it must be the Axes of matplotlib to draw on, or None.")
    with mpl.rc_context(STYLE):
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots(figsize=size, layout="constrained")[1]
        yield ax
