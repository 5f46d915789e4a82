"""Answers in OpenAI's form: whole ones and pieces of a stream, for completions and for chat completions."""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import repsurgery
from repsurgery.serve.job import Piece, TokenScore

__all__ = ["Answer", "ChatAnswer", "CompletionAnswer", "Tally"]


@dataclass(slots=True)
class Tally:
    """The tokens of a request so far."""

    prompt_tokens: int
    completion_tokens: int = 0

    def as_dict(self) -> dict[str, int]:
        """Return OpenAI's ``usage``."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }


@dataclass(frozen=True, slots=True)
class Answer(ABC):
    """The identity that all parts of one answer share; the classes below give them their form."""

    model: str
    scored: bool
    warnings: Sequence[str] = ()
    created: int = field(default_factory=lambda: int(time.time()))
    prefix = "cmpl"
    whole = part = "text_completion"
    number: str = field(default_factory=lambda: uuid.uuid4().hex)

    def body(self, choices: Sequence[Any], usage: Tally | None, *, part: bool, last: bool = True) -> dict[str, Any]:
        """Return a whole answer, or a part of a stream; the last one holds the warnings, if there are any."""
        body = {
            "id": f"{self.prefix}-{self.number}",
            "object": self.part if part else self.whole,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": f"repsurgery-{repsurgery.__version__}",
            "choices": list(choices),
        }
        if self.warnings and last:
            body["warnings"] = list(self.warnings)
        return body if usage is None else {**body, "usage": usage.as_dict()}

    def opening(self, index: int) -> dict[str, Any] | None:
        """Return the choice of a stream that comes before its text, or None."""
        return None

    @abstractmethod
    def gained(self, piece: Piece) -> dict[str, Any]:
        """Return a choice of a stream."""

    @abstractmethod
    def choice(self, piece: Piece) -> dict[str, Any]:
        """Return a choice of a whole answer."""


class CompletionAnswer(Answer):
    """An answer of ``/v1/completions``."""

    __slots__ = ()

    def gained(self, piece: Piece) -> dict[str, Any]:
        """Return a choice of a stream."""
        return self.choice(piece)

    def choice(self, piece: Piece) -> dict[str, Any]:
        """Return a choice of a whole answer."""
        scores = _completion_scores(piece.scores) if self.scored else None
        return {"index": piece.index, "text": piece.text, "logprobs": scores, "finish_reason": piece.finish}


class ChatAnswer(Answer):
    """An answer of ``/v1/chat/completions``."""

    __slots__ = ()
    prefix = "chatcmpl"
    whole = "chat.completion"
    part = "chat.completion.chunk"

    def opening(self, index: int) -> dict[str, Any] | None:
        """Return the choice that names the role."""
        return {"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}

    def gained(self, piece: Piece) -> dict[str, Any]:
        """Return a choice of a stream."""
        delta = {"content": piece.text} if piece.text else {}
        return {"index": piece.index, "delta": delta, **self._rest(piece)}

    def choice(self, piece: Piece) -> dict[str, Any]:
        """Return a choice of a whole answer."""
        message = {"role": "assistant", "content": piece.text, "refusal": None}
        return {"index": piece.index, "message": message, **self._rest(piece)}

    def _rest(self, piece: Piece) -> dict[str, Any]:
        scores = _chat_scores(piece.scores) if self.scored else None
        return {"logprobs": scores, "finish_reason": piece.finish}


def _completion_scores(scores: Sequence[TokenScore]) -> dict[str, Any]:
    return {
        "tokens": [score.text for score in scores],
        "token_logprobs": [score.logprob for score in scores],
        # the drawn token is always among them
        "top_logprobs": [dict(score.top) | {score.text: score.logprob} for score in scores],
        "text_offset": [score.start for score in scores],
    }


def _chat_scores(scores: Sequence[TokenScore]) -> dict[str, Any]:
    content = [
        {**_token(score.text, score.logprob), "top_logprobs": [_token(text, p) for text, p in score.top]}
        for score in scores
    ]
    return {"content": content, "refusal": None}


def _token(text: str, logprob: float) -> dict[str, Any]:
    # part of a character has no text, and its bytes are not known here
    known = None if "\ufffd" in text else list(text.encode())
    return {"token": text, "logprob": logprob, "bytes": known}
