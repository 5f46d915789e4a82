"""What every scorer does with its texts first: refuse what is no text, and leave out what holds nothing to score."""

from collections.abc import Callable, Sequence

from repsurgery.errors import DataError

__all__ = ["check_texts", "score_visible"]


def check_texts(texts: Sequence[str], *, caller: str) -> list[str]:
    """Return ``texts`` as a list, or say which of them is none."""
    if isinstance(texts, str):
        raise DataError(f"{caller} takes a list of texts and got one text. Pass [text].")
    found = list(texts)
    for row, text in enumerate(found):
        if not isinstance(text, str):
            raise DataError(f"{caller} got a {type(text).__name__} at position {row}. Pass texts only.")
    return found


def score_visible(
    texts: Sequence[str], score: Callable[[list[str]], Sequence[float]], *, caller: str
) -> list[float | None]:
    """Return ``score`` of the texts with a visible character, each in its place, and None for the others."""
    found = check_texts(texts, caller=caller)
    kept = [text for text in found if text.strip()]
    scores = iter(score(kept) if kept else ())
    return [float(next(scores)) if text.strip() else None for text in found]
