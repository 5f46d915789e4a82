"""`Documents`: whole texts in the tokenised form of WikiText, and as ordinary text for a model."""

import re
from dataclasses import dataclass, field, replace

from repsurgery.checkpoint import digest
from repsurgery.errors import DataError, ParameterError

__all__ = ["Documents", "detokenise"]

_SPACED = {
    " @-@ ": "-",
    " @,@ ": ",",
    " @.@ ": ".",
    " : ": ": ",
    " ; ": "; ",
    " . ": ". ",
    " ! ": "! ",
    " ? ": "? ",
    " , ": ", ",
}
"""Number separators and punctuation, in this order."""

_ENCLOSED = tuple(
    (re.compile(rf"{start}\s*([^{inner}]*?)\s*{end}"), rf"{left}\1{right}")
    for start, inner, end, left, right in (
        (r"\(", r"\)", r"\)", "(", ")"),
        (r"\[", r"\]", r"\]", "[", "]"),
        (r"{", r"}", r"}", "{", "}"),
        (r"\"", r"\"", r"\"", '"', '"'),
        (r"'", r"'", r"'", "'", "'"),
    )
)
"""Space inside brackets and quotes."""

_REST = {
    "= = = =": "====",
    "= = =": "===",
    "= =": "==",
    " ° ": "°",
    " \n": "\n",
    "\n ": "\n",
    " N ": " 1 ",
    " 's": "'s",
}


def detokenise(text: str) -> str:
    """Return ordinary text from WikiText's tokens, by the rules of lm-evaluation-harness and in their order.

    Guarantees
    ----------
    Equal to the harness's own function (test_detokenising_is_the_harness_s).
    """
    text = text.replace("s '", "s'")
    # the harness meant a pattern on both sides; this copies its actual behaviour, on which its figures depend
    text = re.sub(r"/' [0-9]/", "/'[0-9]/", text)
    for spaced, joined in _SPACED.items():
        text = text.replace(spaced, joined)
    for pattern, joined in _ENCLOSED:
        text = pattern.sub(joined, text)
    for spaced, joined in _REST.items():
        text = text.replace(spaced, joined)
    return text


@dataclass(frozen=True, slots=True)
class Documents:
    """Whole documents, in order.

    Parameters
    ----------
    texts : tuple of str
        The n documents in their original form; none is empty.
    name, source, licence : str
        The name of the documents, their source, and their terms of use.

    Attributes
    ----------
    digest : str
        SHA-256 of the texts in order, to be quoted with results.

    Guarantees
    ----------
    Words and bytes are counted as lm-evaluation-harness does (test_words_and_bytes_are_the_harness_s).
    """

    texts: tuple[str, ...]
    name: str = field(kw_only=True)
    source: str = field(kw_only=True)
    licence: str = field(default="unknown", kw_only=True)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", tuple(self.texts))
        if not self.texts:
            raise DataError(f"{self.name} holds no documents. Give at least one.")
        for i, text in enumerate(self.texts):
            if not isinstance(text, str) or not text.strip():
                raise DataError(f"{self.name}: document {i} is empty or not a string. Remove it.")
        object.__setattr__(self, "digest", digest(self.texts, escape=False))

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def detokenised(self) -> tuple[str, ...]:
        """The n documents as a model reads them: see `detokenise`."""
        return tuple(map(detokenise, self.texts))

    @property
    def words(self) -> int:
        """Return the number of words of the original texts, between white space.

        White space at either end adds an empty word, as in the harness.
        """
        return sum(self.words_of_each)

    @property
    def words_of_each(self) -> tuple[int, ...]:
        """Return the number of words of each document, counted as `words` are."""
        return tuple(len(re.split(r"\s+", text)) for text in self.texts)

    @property
    def bytes(self) -> int:
        """Return the number of UTF-8 bytes of the original texts."""
        return sum(len(text.encode("utf-8")) for text in self.texts)

    def first(self, n: int) -> "Documents":
        """Return the first ``n`` documents, under a name that says so."""
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= len(self):
            raise ParameterError(
                f"{self.name} holds {len(self)} documents; n is {n!r}, and must be a whole number from 1 to that."
            )
        return replace(self, texts=self.texts[:n], name=f"{self.name}, first {n} of {len(self)} documents")
