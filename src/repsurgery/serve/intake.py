"""From a request to rows: its prompt as tokens, its steering, its limits and its noise."""

import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from repsurgery.errors import ParameterError, TextError
from repsurgery.lm.batching.tokens import Tokens, context_length
from repsurgery.lm.chat import assistant_turns, chat_prompt, rendered
from repsurgery.lm.generate.sampling import sample_key
from repsurgery.lm.steer.rows import NOTABLE, RowPlan, price_words
from repsurgery.serve.job import RowSpec
from repsurgery.serve.limits import Limits
from repsurgery.serve.refusals import Refusal
from repsurgery.serve.schema import ChatRequest, CompletionRequest, SteeringChoice
from repsurgery.serve.steerings import Steerings

__all__ = ["Intake", "Prepared"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that can begin.

    Attributes
    ----------
    specs : list of RowSpec
        In order of prompt and choice.
    model : str
        The model as the client named it.
    seed : int
        As sent, or drawn.
    prompt_tokens : int
    steerings : tuple of str
        Their names.
    warnings : tuple of str
        About strengths far above the measured ones, steerings that change each other's effect, and prices that add up.
    """

    specs: list[RowSpec]
    model: str
    seed: int
    prompt_tokens: int
    steerings: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A text, its tokens, how many may follow, and which of them the assistant wrote (None: it does not matter)."""

    text: str
    tokens: Tokens
    longest: int
    turns: list[bool] | None


class Intake:
    """Prepares requests for one model; its methods may be called by several threads.

    Parameters
    ----------
    model, tokenizer
    name : str
        The name under which the model is served.
    steerings : Steerings
    limits : Limits
    """

    def __init__(self, model: Any, tokenizer: Any, name: str, steerings: Steerings, limits: Limits) -> None:
        self._model, self._tokenizer, self._name = model, tokenizer, name
        self._steerings, self._limits = steerings, limits
        self._context = context_length(model, tokenizer)

    def prepare(self, request: CompletionRequest | ChatRequest) -> Prepared:
        """Return the rows of a request, or raise a `Refusal`."""
        self._check_rows(request)
        choices = self._choices(request)
        plan = self._steerings.plan(choices)
        prompts = self._prompts(request, plan)
        seed = secrets.randbits(63) if request.seed is None else request.seed
        seen: Counter[str] = Counter()
        specs: list[RowSpec] = []
        for prompt in prompts:
            for sample in range(request.n):
                specs.append(
                    RowSpec(
                        index=len(specs),
                        prompt=prompt.tokens,
                        plan=plan,
                        key=sample_key(seed, prompt.text, seen[prompt.text], sample),
                        temperature=request.temperature,
                        top_p=request.top_p,
                        max_tokens=prompt.longest,
                        stops=request.stop,
                        alternatives=request.alternatives,
                        turns=prompt.turns,
                    )
                )
            seen[prompt.text] += 1
        names = tuple(choice.name for choice in choices)
        model = self._name if request.model is None else request.model
        read = sum(len(prompt.tokens) for prompt in prompts)
        return Prepared(specs, model, seed, read, names, _warnings(plan, names))

    def _choices(self, request: CompletionRequest | ChatRequest) -> Sequence[SteeringChoice]:
        """Return the steerings that the field ``steering`` or the name of the model asks for."""
        base, plus, name = self._name, "+", request.model
        if name is None or name == base:
            return request.steering
        if not name.startswith(base + plus):
            message = f"The model {name[:128]!r} does not exist. GET /v1/models lists those of this server."
            raise Refusal(404, message, param="model", code="model_not_found")
        steering = name.removeprefix(base + plus)
        if not request.steering:
            return [SteeringChoice.model_construct(name=steering, strength=None, positions=None, scale=1.0)]
        if [choice.name for choice in request.steering] != [steering]:
            message = "The model names one steering and the field steering another. Send one of them."
            raise Refusal(400, message, param="steering")
        return request.steering

    def _check_rows(self, request: CompletionRequest | ChatRequest) -> None:
        rows = request.n * (len(request.prompt) if isinstance(request, CompletionRequest) else 1)
        most = self._limits.max_queue
        if rows > most:
            raise Refusal(
                400, f"The request asks for {rows} choices in all; this server takes at most {most}.", param="n"
            )

    def _prompts(self, request: CompletionRequest | ChatRequest, plan: RowPlan) -> list[_Prompt]:
        field = "prompt" if isinstance(request, CompletionRequest) else "messages"
        try:
            if isinstance(request, CompletionRequest):
                texts = request.prompt
                rows = self._tokenizer(texts, padding=False, verbose=False)["input_ids"]
            else:
                texts = [rendered(self._tokenizer, request.messages)]
                rows = [chat_prompt(self._tokenizer, request.messages)]
            lengths = [self._longest(request, len(tokens), field) for tokens in rows]
            turns = self._turns(request) if plan.needs_turns else None
        except (TextError, ParameterError) as error:
            raise Refusal(400, str(error), param=field) from error
        return [_Prompt(*one, turns) for one in zip(texts, rows, lengths, strict=True)]

    def _turns(self, request: CompletionRequest | ChatRequest) -> list[bool]:
        """Return which tokens the assistant wrote; the template is applied to every part, so only where it matters."""
        if isinstance(request, CompletionRequest):
            raise ParameterError("positions 'assistant' needs a conversation. Use /v1/chat/completions.")
        return assistant_turns(self._tokenizer, request.messages)[1]

    def _longest(self, request: CompletionRequest | ChatRequest, length: int, field: str) -> int:
        """Return how many tokens may follow a prompt of ``length`` tokens; only what was asked for can be too many."""
        room, most, asked = self._context - length, self._limits.max_new_tokens, request.longest
        if asked is not None and asked > most:
            message = f"max_tokens is {asked}; this server generates at most {most} tokens per choice."
            raise Refusal(400, message, param="max_tokens")
        new = asked or int(min(request.usual, most, max(room, 1)))
        if length == 0 or new > room:
            raise Refusal(
                400,
                f"The prompt has {length} tokens, and the answer may have {new}; the context holds {self._context}. "
                "Shorten the prompt, or lower max_tokens.",
                param=field,
                code="context_length_exceeded",
            )
        return new


def _warnings(plan: RowPlan, names: Sequence[str]) -> tuple[str, ...]:
    far = [f"{names[i]}: {sentence}" for i, sentence in plan.far]
    changes = [
        f"at {one.site} {names[one.second]} changes the effect of {names[one.first]} by {one.change:+.0%} (predicted)"
        for one in plan.interferences
        if abs(one.change) >= NOTABLE
    ]
    prices = [f"the steerings {price_words(plan.prices)}"] if plan.prices else []
    return (*far, *changes, *prices)
