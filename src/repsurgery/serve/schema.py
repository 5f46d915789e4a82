"""What a client may send: OpenAI's completions and chat completions, and the steering of this request."""

import difflib
import json
from collections.abc import Collection
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

__all__ = ["STRONGEST", "ChatRequest", "CompletionRequest", "Request", "SteeringChoice"]

MAX_FIELDS = 64
MAX_PROMPTS = 1024
MAX_MESSAGES = 1024
MAX_STOPS = 4
STRONGEST = 100.0
"""The largest strength, and the largest product of strength and scale, that a request may ask for."""
COOLEST = 1e-5
"""The lowest temperature of sampling; logits divided by less may overflow, and 0 means greedy."""

HARMLESS = frozenset(
    ["user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"]
)
"""Fields of OpenAI's that cannot change the answer of this server."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "add_special_tokens": (True,),
    "bad_words": ([],),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none",),
    "functions": ([],),
    "ignore_eos": (False,),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "min_p": (0,),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "no_repeat_ngram_size": (0,),
    "num_beams": (1,),
    "parallel_tool_calls": (False, True),
    "presence_penalty": (0,),
    "repeat_penalty": (1,),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "stop_token_ids": ([],),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_k": (-1, 0),
    "typical_p": (1,),
    "use_beam_search": (False,),
}
"""Fields that act at other servers, with the values that change nothing."""
REMEDIES = {
    "extra_body": "it is an argument of OpenAI's Python client; send what it holds as fields of the body",
    "strength": "send it inside steering",
    "positions": "send it inside steering",
    "scale": "send it inside steering",
}


class SteeringChoice(BaseModel):
    """One steering of a request; strength and positions replace those of its file, scale multiplies the strength."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, frozen=True)

    name: str = Field(min_length=1, max_length=256)
    strength: float | None = Field(None, ge=-STRONGEST, le=STRONGEST)
    positions: Literal["all", "generated", "prompt", "last", "assistant"] | None = None
    scale: float = 1.0

    @model_validator(mode="before")
    @classmethod
    def _fields(cls, sent: Any) -> Any:
        unknown = [str(key)[:64] for key in sent if key not in cls.model_fields] if isinstance(sent, dict) else []
        if unknown:
            raise ValueError(f"Unknown field {unknown[0]!r}; a steering has the fields {', '.join(cls.model_fields)}")
        # a null means the default, as in the body
        return {name: value for name, value in sent.items() if value is not None} if isinstance(sent, dict) else sent


class StreamOptions(BaseModel):
    """Whether a stream ends with the number of tokens."""

    model_config = ConfigDict(strict=True, frozen=True)

    include_usage: bool = False


def _steerings(value: Any) -> Any:
    if isinstance(value, dict):
        return [value]
    if not isinstance(value, list):
        raise ValueError('it must be an object such as {"name": "kinder", "strength": 1.0}, or a list of such objects')
    return value


def _stops(value: Any) -> Any:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > MAX_STOPS:
        raise ValueError(f"it must be a string, or a list of at most {MAX_STOPS} strings")
    if not all(isinstance(stop, str) and 0 < len(stop) <= 256 for stop in stops):
        raise ValueError("each stop must be a string of 1 to 256 characters")
    return stops


def _prompts(value: Any) -> Any:
    prompts = [value] if isinstance(value, str) else value
    if not isinstance(prompts, list) or not 0 < len(prompts) <= MAX_PROMPTS:
        raise ValueError(f"it must be a string, or a list of 1 to {MAX_PROMPTS} strings")
    if any(isinstance(prompt, int | list) for prompt in prompts):
        raise ValueError("prompts of token numbers are not accepted; send the text")
    if not all(isinstance(prompt, str) for prompt in prompts):
        raise ValueError("every prompt must be a string")
    if not all(prompt.strip() for prompt in prompts):
        raise ValueError("a prompt is empty, or holds spaces only; send at least one other character")
    return prompts


def _messages(value: Any) -> Any:
    if not isinstance(value, list) or not 0 < len(value) <= MAX_MESSAGES:
        raise ValueError(f"it must be a list of 1 to {MAX_MESSAGES} messages with role and content")
    if not all(isinstance(message, dict) for message in value):
        raise ValueError("every message must be an object with role and content")
    # the newer name of the same role
    return [{**m, "role": "system"} if m.get("role") == "developer" else m for m in value]


def _neutral(name: str, value: Any, given: dict[str, Any]) -> bool:
    if name == "best_of":
        return _same(value, given.get("n", 1))
    return any(_same(value, one) for one in NEUTRAL.get(name, ()))


def _same(sent: Any, value: Any) -> bool:
    """Return whether two values of JSON are equal; in Python, false is equal to 0 and true to 1."""
    return isinstance(sent, bool) == isinstance(value, bool) and bool(sent == value)


def _unsupported(name: str, known: Collection[str]) -> str:
    shown = repr(name[:64])
    if name in REMEDIES:
        return f"The field {shown} is not supported here: {REMEDIES[name]}"
    if close := difflib.get_close_matches(name[:64], known, 1, 0.75):
        return f"Unknown field {shown}; did you mean {close[0]!r}?"
    return f"The field {shown} is not supported here, and ignoring it could change the answer; leave it out"


class Request(BaseModel):
    """What completions and chat completions share."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, frozen=True)

    model: str | None = Field(None, max_length=512)
    steering: Annotated[list[SteeringChoice], BeforeValidator(_steerings), Field(max_length=8)] = []
    n: int = Field(1, ge=1, le=128)
    temperature: float = Field(1.0, ge=0, le=100)
    top_p: float = Field(1.0, gt=0, le=1)
    stop: Annotated[list[str], BeforeValidator(_stops)] = []
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _fields(cls, sent: Any) -> Any:
        """Drop nulls, which mean the default; refuse every field that is not known to leave the answer as it is."""
        if not isinstance(sent, dict):
            raise ValueError("The body must be a JSON object, sent with the header Content-Type: application/json")
        if len(sent) > MAX_FIELDS:
            raise ValueError(f"The body has {len(sent)} fields; at most {MAX_FIELDS} are read")
        try:
            json.dumps(sent, ensure_ascii=False).encode()
        except (UnicodeEncodeError, RecursionError):
            raise ValueError("The body is nested too deeply, or a text holds half of a surrogate pair") from None
        given = {name: value for name, value in sent.items() if value is not None}
        for name, value in given.items():
            if name not in cls.model_fields and name not in HARMLESS and not _neutral(name, value, given):
                raise ValueError(_unsupported(name, cls.model_fields))
        return given

    @model_validator(mode="after")
    def _consistent(self) -> "Request":
        if 0 < self.temperature < COOLEST:
            raise ValueError(f"The temperature is below {COOLEST:g}; send 0 for greedy decoding")
        if self.max_tokens and self.max_completion_tokens and self.max_tokens != self.max_completion_tokens:
            raise ValueError("The fields max_tokens and max_completion_tokens differ; send one of them")
        return self

    @property
    def longest(self) -> int | None:
        """The number of new tokens that was asked for; None: none was."""
        return self.max_completion_tokens or self.max_tokens


class CompletionRequest(Request):
    """The body of ``/v1/completions``."""

    prompt: Annotated[list[str], BeforeValidator(_prompts)]
    logprobs: int | None = Field(None, ge=0, le=5)
    usual: ClassVar[float] = 16
    """The number of new tokens if none is stated and there is room for as many."""

    @property
    def alternatives(self) -> int | None:
        """The number of tokens whose probabilities are returned beside each drawn one; None returns none at all."""
        return self.logprobs


class ChatRequest(Request):
    """The body of ``/v1/chat/completions``."""

    messages: Annotated[list[dict[str, Any]], BeforeValidator(_messages)]
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=20)
    usual: ClassVar[float] = float("inf")

    @model_validator(mode="after")
    def _scored(self) -> "ChatRequest":
        if self.top_logprobs and not self.logprobs:
            raise ValueError("The field 'top_logprobs' needs logprobs: true")
        return self

    @property
    def alternatives(self) -> int | None:
        """As in `CompletionRequest`."""
        return self.top_logprobs if self.logprobs else None
