"""A plain instruction before the prompt: the cheapest thing that a user would try."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from repsurgery.errors import ModelError, ParameterError
from repsurgery.lm.batching.tokens import Tokens
from repsurgery.studies.toxicity.decoding.rival import Rival
from repsurgery.studies.toxicity.generators import GENERATORS, GeneratorContext

__all__ = ["WORDINGS", "Instruction", "opening_of_chat"]

WORDINGS: Mapping[str, str] = {
    "kind": "Be kind, polite and respectful.",
    "safe": "Write with care, respect and truth. Avoid harmful, unethical, prejudiced or negative content.",
    "none": "",
}
"""The instructions by name; with "none", a chat shows what its template does on its own."""
CHAT = ("auto", "yes", "no")
TASK = "Write a text."
"""What the user of a chat asks for, before the instruction."""
_STAND_IN = "PROMPT"


@GENERATORS.register("instruction")
class Instruction(Rival):
    """Let the model read an instruction, and sample what follows the prompt.

    With a chat template, the instruction is the user's message, and the prompt is the beginning of the assistant's
    answer, which is left open. Without one, the instruction is a paragraph before the prompt.

    Attributes
    ----------
    options
        ``wording`` is a key of `WORDINGS`. ``chat`` uses the tokenizer's chat template if there is one (auto), requires
        it (yes) or does not use it (no).

    Guarantees
    ----------
    Without an instruction the tokens are those of the base
    (test_without_an_instruction_the_texts_are_those_of_the_base).
    The continuation is what follows the prompt (test_the_continuation_is_what_follows_the_prompt).
    """

    options: ClassVar[Mapping[str, str | int | float]] = {"wording": "kind", "chat": "auto"}
    needs: ClassVar[str] = "a model that follows instructions"

    def __init__(self, name: str, context: GeneratorContext, **options: Any) -> None:
        super().__init__(name, context, **options)
        for option, allowed in (("wording", tuple(WORDINGS)), ("chat", CHAT)):
            if self.chosen[option] not in allowed:
                raise ParameterError(
                    f"{name!r} has {option} {self.chosen[option]!r}; choose one of {', '.join(allowed)}."
                )
        self.before = self._before()

    def _before(self) -> str:
        instruction, chat = WORDINGS[self.chosen["wording"]], self.chosen["chat"]
        self.in_chat = chat == "yes" or (chat == "auto" and bool(self.tokenizer.chat_template))
        if self.in_chat:
            return opening_of_chat(self.tokenizer, f"{TASK} {instruction}".strip())
        return f"{instruction}\n\n" if instruction else ""

    @property
    def identity(self) -> Mapping[str, Any]:
        """Also the text before the prompt."""
        return {**super().identity, "before": self.before}

    def encode(self, prompts: Sequence[str]) -> list[Tokens]:
        """Return the tokens of the instruction and each prompt."""
        # a chat template writes the special tokens itself
        return self.encoded(prompts, before=self.before, special_tokens=not self.in_chat)


def opening_of_chat(tokenizer: Any, message: str) -> str:
    """Return what a chat template writes before the assistant's answer to the user's ``message``."""
    if not tokenizer.chat_template:
        raise ModelError("The tokenizer has no chat template, which chat=yes needs. Use chat=no, or an instruct model.")
    chat = [{"role": "user", "content": message}, {"role": "assistant", "content": _STAND_IN}]
    try:
        text = str(tokenizer.apply_chat_template(chat, tokenize=False, continue_final_message=True))
    except Exception as error:  # a template is foreign code that raises what it likes
        raise ModelError(
            f"The tokenizer's chat template cannot leave an answer open ({error}). Use chat=no."
        ) from error
    if not text.endswith(_STAND_IN):
        raise ModelError(f"The tokenizer's chat template changes the answer, as in {text[-40:]!r}. Use chat=no.")
    return text.removesuffix(_STAND_IN)
