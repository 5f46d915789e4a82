"""`warn_caller`: a warning that points at the line that called this package, however deep inside it arose."""

import contextlib
import os
import sys
import warnings
from types import FrameType

from repsurgery.errors import SurgeryWarning

__all__ = ["warn_caller"]

_INSIDE = (os.path.dirname(os.path.abspath(__file__)) + os.sep, contextlib.__file__)  # noqa: PTH100, PTH120 - as in frames
"""Beginnings of the paths of code that is not the caller's: this package, and the module that enters its blocks."""


def warn_caller(message: str, category: type[SurgeryWarning]) -> None:
    """Warn at the innermost line that lies outside this package.

    Guarantees
    ----------
    The line is the same for every entry into the package (test_a_warning_points_at_the_line_of_the_caller).
    """
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
