"""The third-person pronouns of English that tell a gender."""

__all__ = ["gender_of"]

_GENDERS = dict.fromkeys(("she", "her", "hers", "herself"), "female") | dict.fromkeys(
    ("he", "him", "his", "himself"), "male"
)


def gender_of(word: str) -> str | None:
    """Return "female" or "male", or None for any other word."""
    return _GENDERS.get(word.strip().lower())
