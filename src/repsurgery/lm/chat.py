"""Conversations as tokens: through the tokenizer's chat template, with the positions of the assistant's turns."""

from collections.abc import Mapping, Sequence
from typing import Any

from repsurgery.errors import MissingExtraError, ParameterError, TextError

__all__ = [
    "ROLES",
    "ChatText",
    "Conversation",
    "as_text",
    "assistant_turns",
    "chat_prompt",
    "check_messages",
    "is_conversation",
    "rendered",
    "turns_of",
]

Conversation = Sequence[Mapping[str, Any]]
"""Messages with a role and a content, in order, as in OpenAI's interface."""

ROLES = ("system", "user", "assistant")


class ChatText(str):
    """A conversation in the place of a text, as `as_text` or `rendered` write it.

    It is read through the chat template of the model's tokenizer, whatever its characters; see `encode`.

    Attributes
    ----------
    messages : tuple of mappings
        The conversation, with the role and the text of each message.
    """

    messages: tuple[Mapping[str, str], ...]

    def __new__(cls, text: str, messages: Conversation = ()) -> "ChatText":
        """Return ``text``, which was written from ``messages``."""
        self = super().__new__(cls, text)
        self.messages = tuple(messages)
        return self

    @property
    def answered(self) -> bool:
        """Whether the last message is the assistant's."""
        return bool(self.messages) and self.messages[-1]["role"] == "assistant"


def chat_prompt(tokenizer: Any, messages: Conversation) -> list[int]:
    """Return the tokens of a conversation, after which the assistant's answer begins.

    Parameters
    ----------
    tokenizer
        A transformers tokenizer with a chat template; it is not changed.
    messages : sequence of mappings
        Each has a "role" (system, user or assistant) and a "content": a string, or a list of
        ``{"type": "text", "text": ...}``, which is joined. Other keys are ignored. If the last message is the
        assistant's, the tokens end with it, so that a model continues it.

    Raises
    ------
    ParameterError
        The tokenizer has no chat template.
    TextError
        There is no message, a role is unknown, a message has no text, or the template refuses the conversation.

    Notes
    -----
    As in other software, the name of a special token inside a message becomes that token.

    Guarantees
    ----------
    The tokens are those of the template, with its special tokens once
    (test_a_conversation_has_the_tokens_of_its_template).
    """
    tokens: list[int] = _tokens(tokenizer, rendered(tokenizer, messages))["input_ids"]
    return tokens


def assistant_turns(tokenizer: Any, messages: Conversation) -> tuple[list[int], list[bool]]:
    """Return the tokens of a conversation as in `chat_prompt`, and which of them the assistant wrote.

    A turn of the assistant is its text: it begins after what the template writes before an answer, and ends before
    what the template writes after one (the end-of-turn token). It is found by comparing what the template writes for
    the beginnings of the conversation, so no template needs to mark it.

    Raises
    ------
    TextError
        The conversation begins with the assistant, two messages in a row are the assistant's, or the template writes
        the beginning of a conversation differently once it goes on, so that turns cannot be found.
    ParameterError
        The tokenizer cannot tell which characters a token stands for (a slow tokenizer).

    Guarantees
    ----------
    The mask is that of the turns' texts (test_the_turns_of_the_assistant_are_found).
    """
    text = rendered(tokenizer, messages)
    encoded = _tokens(tokenizer, text, return_offsets_mapping=_offsets_known(tokenizer))
    return encoded["input_ids"], _mask(tokenizer, text, encoded["offset_mapping"])


def as_text(messages: Conversation) -> ChatText:
    """Return a conversation as a text to show, before a tokenizer is at hand: one line for each message."""
    checked = check_messages(messages)
    return ChatText("\n".join(f"{message['role']}: {message['content']}" for message in checked), checked)


def turns_of(tokenizer: Any, text: str, length: int) -> list[bool] | None:
    """Return which of the first ``length`` tokens of a conversation the assistant wrote; None for a plain text."""
    if not isinstance(text, ChatText):
        return None
    return assistant_turns(tokenizer, text.messages)[1][:length]


def is_conversation(value: Any) -> bool:
    """Return whether ``value`` is meant as a conversation: a sequence that is not a string."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def rendered(tokenizer: Any, messages: Conversation) -> ChatText:
    """Return the text that the chat template writes for a conversation; its special tokens are part of the text.

    If the last message is the assistant's, the text ends with that message, so that a model continues it. Otherwise it
    ends where the assistant's answer begins.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise ParameterError(
            "The tokenizer has no chat template, so it cannot read a conversation. Use an instruct model, set "
            "tokenizer.chat_template, or pass a plain text."
        )
    return _opened(tokenizer, check_messages(messages))


def check_messages(messages: Any) -> list[dict[str, str]]:
    """Return the role and the text of each message, or raise a `TextError` that names the message at fault."""
    if not is_conversation(messages):
        raise TextError(f"A conversation is a list of messages with role and content, not a {type(messages).__name__}.")
    if not messages:
        raise TextError("The conversation has no messages; it needs at least one.")
    return [_message(i, message) for i, message in enumerate(messages)]


def _message(i: int, message: Any) -> dict[str, str]:
    if not isinstance(message, Mapping) or "role" not in message:
        raise TextError(f"Message {i} is {_short(message)}; it must be a mapping with role and content.")
    role = message["role"]
    if role not in ROLES:
        raise TextError(f"Message {i} has the role {_short(role)}; it must be one of {', '.join(ROLES)}.")
    text = _content(i, message.get("content"))
    # an empty system message is how some templates are told to leave out their own
    if not text.strip() and role != "system":
        raise TextError(f"Message {i} ({role}) has no text. Drop it, or write its content.")
    return {"role": role, "content": text}


def _content(i: int, content: Any) -> str:
    if isinstance(content, str):
        return content
    if not is_conversation(content):
        raise TextError(f"Message {i} has the content {_short(content)}; it must be a string or a list of text parts.")
    for part in content:
        if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, Mapping) else part
            raise TextError(f"Message {i} has a part of type {_short(kind)}; only parts of type 'text' can be read.")
    return "".join(part["text"] for part in content)


def _opened(tokenizer: Any, messages: Sequence[Mapping[str, str]]) -> ChatText:
    answered = messages[-1]["role"] == "assistant"
    try:
        text = tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            tokenize=False,
            add_generation_prompt=not answered,
            continue_final_message=answered,
        )
    except ImportError as error:
        raise MissingExtraError(f"Chat templates need Jinja ({error}): pip install 'repsurgery[lm]'") from error
    except Exception as error:  # a template is foreign code, which may raise anything
        reason = _short(str(error) or type(error).__name__)
        raise TextError(
            f"The tokenizer's chat template refuses this conversation: {reason}. Change its messages or their order."
        ) from error
    return ChatText(str(text), messages)


def _mask(tokenizer: Any, text: ChatText, offsets: Sequence[tuple[int, int]]) -> list[bool]:
    """Return which tokens of ``text`` the assistant wrote, where token j stands for the characters ``offsets[j]``."""
    mask = [False] * len(offsets)
    for start, stop in _spans(tokenizer, text):
        inside = [j for j, (first, last) in enumerate(offsets) if first < stop and last > start]
        # some tokenizers report white space as empty, so the gaps of a turn are filled
        for j in range(inside[0], inside[-1] + 1) if inside else ():
            mask[j] = True
    return mask


def _spans(tokenizer: Any, text: ChatText) -> list[tuple[int, int]]:
    """Return the first character of each of the assistant's turns and the one after its last."""
    spans = []
    for i, message in enumerate(text.messages):
        if message["role"] != "assistant":
            continue
        if i == 0:
            raise TextError(
                "The conversation begins with the assistant, so that the beginning of its turn cannot be found. "
                "Begin with a message of the user or the system."
            )
        if text.messages[i - 1]["role"] == "assistant":
            raise TextError(
                f"Messages {i - 1} and {i} are both the assistant's, so that the beginning of the second turn cannot "
                "be found. Join them."
            )
        before, after = _opened(tokenizer, text.messages[:i]), _opened(tokenizer, text.messages[: i + 1])
        if not (text.startswith(after) and after.startswith(before)):
            raise TextError(
                f"The tokenizer's chat template writes the messages before message {i} differently once the "
                "conversation goes on, so that the assistant's turns cannot be found. Use a template that appends "
                "messages, or read the text as a plain string."
            )
        spans.append((len(before), len(after)))
    return spans


def _tokens(tokenizer: Any, text: str, **options: Any) -> Any:
    # the template has written the special tokens
    return tokenizer(str(text), add_special_tokens=False, padding=False, verbose=False, **options)


def _offsets_known(tokenizer: Any) -> bool:
    if not getattr(tokenizer, "is_fast", False):
        raise ParameterError(
            "The assistant's turns need a tokenizer that maps tokens to characters (a fast one), and "
            f"{type(tokenizer).__name__} does not. Load the fast tokenizer of this model."
        )
    return True


def _short(value: Any) -> str:
    text = " ".join((value if isinstance(value, str) else repr(value)).split()).rstrip(".")
    return repr(text) if isinstance(value, str) and len(text) < 40 else text[:200]
