"""`warn_of_labels`: labels that a sentence uses as words must be words."""

import re
import warnings

from repsurgery.errors import LabelWarning

__all__ = ["warn_of_labels"]

WORDS = re.compile(r"[^\W\d_]{2,}([-' ][^\W\d_]+)*")
"""Letters, and hyphens, apostrophes or spaces between them."""


def warn_of_labels(line: str, *labels: str) -> None:
    """Warn once if ``line`` describes texts by labels that are not words, such as "1" or "LABEL_0"."""
    others = [label for label in labels if not WORDS.fullmatch(label)]
    if others:
        warnings.warn(
            f"{line!r} lets the model read that a text is {' or '.join(map(repr, others))}, which is not a word that "
            "describes texts. Rename such labels, as in toxic or rude, or leave this method out.",
            LabelWarning,
            stacklevel=3,
        )
