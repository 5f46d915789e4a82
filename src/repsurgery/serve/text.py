"""The text of an answer while it grows: whole characters only, and nothing from a stop string on."""

import re
from collections.abc import Sequence
from typing import Any

from repsurgery.lm.generate.generate import continuation_text

__all__ = ["GrowingText", "Stops"]

UNREAD = 16
"""Tokens after which a boundary is looked for, so that a long answer is not decoded again and again."""
REPLACEMENT = "\ufffd"
"""What decoders write for bytes that are not yet a whole character."""
BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")
"""A token of one byte. A run of them is a text or, if its bytes are none, all replaced; its end decides that."""
LONGEST_CLEANED = 4
"""The most characters at the end of a text that cleaning up spaces may still change: as in " n '", before a "t"."""
CLEANED = " .?!,'ntmsver"
"""The characters of all strings that cleaning up spaces replaces."""


class GrowingText:
    """The text of the tokens after a prompt, as `lm.generate` gives it, while more tokens arrive.

    Parameters
    ----------
    tokenizer
    prompt : sequence of int

    Guarantees
    ----------
    What `stable` returned stays a prefix of every later text and of the final one, which is that of `lm.generate`
    (test_pieces_concatenate_to_the_text_of_generate).
    Only the tokens since the last boundary are decoded (test_a_long_answer_is_not_decoded_from_its_beginning).
    """

    def __init__(self, tokenizer: Any, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._prompt = list(prompt)
        self._new: list[int] = []
        self._text = _Decoded(tokenizer, self._prompt)
        self._before: str | None = self._text.current()
        self._skipped = 0
        self._shown = ""

    def append(self, token: int) -> None:
        """Add one token."""
        self._new.append(token)
        self._text.append(token)

    def stable(self) -> str:
        """Return the text without the characters at its end that later tokens may change."""
        text = self._text.stable()
        if self._before is not None:
            # later tokens may still change the end of the prompt, as where they complete a character
            if len(text) < len(self._before) and self._before.startswith(text):
                return ""
            if text.startswith(self._before):
                self._skipped = len(self._before)
            else:
                self._text = _Decoded(self._tokenizer, [])
                for token in self._new:
                    self._text.append(token)
                text = self._text.stable()
            self._before = None
        text = text[self._skipped :]
        if text.startswith(self._shown):
            self._shown = text
        return self._shown

    def final(self) -> str:
        """Return the whole text."""
        return continuation_text(self._tokenizer, self._prompt, self._new)


class _Decoded:
    """The text of tokens, without that before their last boundary, while more arrive.

    A boundary is a token after which decoding can begin anew: its text is whole and visible, so that no character, run
    of bytes or cleaned space reaches across its end, and a decoder that treats the first token of a text specially, or
    hides tokens, does so before it.
    """

    def __init__(self, tokenizer: Any, tokens: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._cleans = bool(getattr(tokenizer, "clean_up_tokenization_spaces", False))
        self._fixed = ""
        start = next((i for i in reversed(range(len(tokens))) if self._ends(tokens[i])), None)
        self._head = "" if start is None else self._decode(tokens[start : start + 1])
        self._tokens = list(tokens[start or 0 :])

    def append(self, token: int) -> None:
        self._tokens.append(token)
        if len(self._tokens) > UNREAD and self._ends(token):
            self._fixed = self.current()
            self._head, self._tokens = self._decode([token]), [token]

    def current(self) -> str:
        return self._after_head(self._tokens)

    def stable(self) -> str:
        settled = len(self._tokens)
        while settled and self._open(self._tokens[settled - 1]):
            settled -= 1
        text = self._after_head(self._tokens[:settled]).rstrip(REPLACEMENT)
        return text[: max(len(text) - LONGEST_CLEANED, len(self._fixed))] if self._cleans else text

    def _after_head(self, tokens: Sequence[int]) -> str:
        return self._fixed + self._decode(tokens)[len(self._head) :]

    def _open(self, token: int) -> bool:
        """Return whether a run of bytes may go on after ``token``: it is a byte, or nothing is written for it."""
        # twice, because some decoders drop the space that begins a text
        return self._is_byte(token) or not self._decode([token, token])

    def _ends(self, token: int) -> bool:
        """Return whether ``token`` is a boundary."""
        text = self._decode([token])
        whole = text.strip() and REPLACEMENT not in text and not self._is_byte(token)
        return bool(whole) and not (self._cleans and text[-1] in CLEANED)

    def _is_byte(self, token: int) -> bool:
        return BYTE.fullmatch(str(self._tokenizer.convert_ids_to_tokens(token))) is not None

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))


class Stops:
    """Where a growing text must end: before the first of some strings.

    Guarantees
    ----------
    Nothing from the first stop on is ever released, however the text arrives
    (test_nothing_after_a_stop_is_released).
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._longest = max(map(len, stops), default=0)
        self._searched = 0

    def cut(self, text: str, *, final: bool = False) -> tuple[str, bool]:
        """Return how much of ``text`` may be shown, and whether a stop was found.

        ``text`` begins with what was passed before. Until ``final``, an end that may become a stop is kept back.
        """
        start = max(self._searched - self._longest + 1, 0)
        found = [at for stop in self._stops if (at := text.find(stop, start)) >= 0]
        if found:
            return text[: min(found)], True
        self._searched = len(text)
        return (text if final else text[: len(text) - self._begun(text)]), False

    def _begun(self, text: str) -> int:
        lengths = range(min(self._longest - 1, len(text)), 0, -1)
        return next((k for k in lengths if any(stop.startswith(text[-k:]) for stop in self._stops)), 0)
