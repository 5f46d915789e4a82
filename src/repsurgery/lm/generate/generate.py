"""Sample reproducible continuations of prompts, steered or not."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from torch import nn
from transformers import GenerationConfig, LogitsProcessorList

from repsurgery.arrays import check_integer
from repsurgery.errors import ModelError, ParameterError
from repsurgery.lm.batching.batches import entry_device, evaluating, map_batches
from repsurgery.lm.batching.tokens import Tokens, check_texts, encode, pad, pad_id
from repsurgery.lm.chat import Conversation
from repsurgery.lm.generate.batch_rows import BatchRows, row_plans
from repsurgery.lm.generate.decode_pass import rope_threshold
from repsurgery.lm.generate.prefill import read_once
from repsurgery.lm.generate.sampling import KeyedSampling, sample_key
from repsurgery.lm.sites.wrappers import unwrapped
from repsurgery.lm.steer.positions import Positions
from repsurgery.lm.steer.steer import optional_steer
from repsurgery.lm.steer.steer_rows import row_block

__all__ = [
    "Generation",
    "continuation_text",
    "end_tokens",
    "generate",
    "predicting_positions",
    "prompt_lengths",
    "prompt_tokens",
    "until_end",
]


@dataclass(frozen=True, slots=True)
class Generation:
    """One sampled continuation.

    Attributes
    ----------
    prompt : str
        For a conversation, the text that the chat template writes before the answer.
    index : int
        The index of the prompt.
    sample : int
        The index of the continuation among the n of its prompt.
    text : str
        The continuation alone.
    tokens : tuple of int
        Its tokens, without the end token.
    finished : bool
        Whether the model ended the text itself.
    prompt_tokens : tuple of int
        The tokens of the prompt from which it was drawn, truncated to ``max_length``. Empty in a generation read from
        an older file, which then means those of the whole prompt.
    """

    prompt: str
    index: int
    sample: int
    text: str
    tokens: tuple[int, ...]
    finished: bool
    prompt_tokens: tuple[int, ...] = ()


def generate(
    model: nn.Module,
    tokenizer: Any,
    prompts: Sequence[str | Conversation],
    *,
    steering: Any = None,
    strength: float | None = None,
    scale: float = 1.0,
    kl_budget: float | None = None,
    fisher: Any = None,
    moments: Any = None,
    share: Any = None,
    positions: Positions | None = None,
    n: int = 25,
    max_new_tokens: int = 20,
    top_p: float = 0.9,
    temperature: float = 1.0,
    seed: int = 0,
    max_length: int | None = None,
    batch_size: int = 50,
    progress: bool = True,
) -> list[Generation]:
    """Return ``n`` sampled continuations of each prompt, in order of prompt and sample.

    Parameters
    ----------
    model, tokenizer
        A transformers decoder and its tokenizer; neither is changed.
    prompts : sequence of str or conversations
        A conversation is a list of messages with role and content, to which the assistant answers; if its last message
        is the assistant's, that message is continued. See `chat_prompt`.
    steering : None, a mapping of site to steering, a Placement, one steering for the site of its origin, or a list
        A steering whose origin names no site acts at "final". See `steer`, also for ``strength``, ``scale``,
        ``kl_budget``, ``fisher``, ``moments``, ``share`` and ``positions``. A list has one entry for each prompt, as in
        `steer_rows`, which may itself be a list of placements; ``strength`` and ``positions`` then hold for entries
        that state none, ``scale`` multiplies that of each entry, and ``kl_budget`` is refused.
    n, max_new_tokens : int
    top_p, temperature : float
        Nucleus mass and temperature of the sampling.
    seed : int
        Noise is keyed by (seed, prompt, sample, step): a sample depends neither on its batch nor on the other prompts.
        A prompt that is repeated under the same steering draws other noise.
    max_length : int or None
        Read only the first ``max_length`` tokens of longer prompts.
    batch_size : int
        Continuations per pass; halved, with a warning, if memory is exhausted.
    progress : bool

    Guarantees
    ----------
    Equal seeds give equal tokens, whatever the batch (test_samples_do_not_depend_on_their_batch).
    A conversation is continued like the tokens of its template
    (test_a_conversation_is_continued_like_the_tokens_of_its_template).
    Tokens are drawn from the model's distribution (test_samples_follow_the_distribution_of_the_model).
    With a list of steerings, every prompt has the texts that it has under its own steering alone
    (test_a_list_of_steerings_writes_what_each_writes_alone).
    """
    if not callable(getattr(unwrapped(model), "generate", None)):
        raise ModelError(f"{type(unwrapped(model)).__name__} is an encoder and writes no text. Load a decoder.")
    prompts = check_texts(prompts, caller="generate", tokenizer=tokenizer)
    n, max_new_tokens = check_integer("n", n), check_integer("max_new_tokens", max_new_tokens)
    _check_sampling(top_p, temperature, seed)
    tokens = encode(model, tokenizer, prompts, max_length=max_length, room=max_new_tokens, caller="generate")
    ends = end_tokens(model, tokenizer)
    budget = {"kl_budget": kl_budget, "fisher": fisher, "moments": moments, "share": share}
    by_row = isinstance(steering, (list, tuple))
    plans = row_plans(model, prompts, steering, strength, scale, positions, budget) if by_row else []
    keys = _keys(prompts, [plan.key for plan in plans] or [""] * len(prompts), n, seed)

    def run(batch: list[int]) -> list[Generation]:
        rows = [tokens[item // n] for item in batch]
        sampling = {"top_p": top_p, "temperature": temperature}
        own = [plans[item // n] for item in batch] if by_row else None
        batched = BatchRows([prompts[item // n] for item in batch], rows, own, steered)
        with batched.stating_turns(tokenizer):
            noise = [keys[item] for item in batch]
            new = _continue(model, tokenizer, batched, noise, max_new_tokens, ends, sampling)
        return [generation(item, row, drawn) for item, row, drawn in zip(batch, rows, new, strict=True)]

    def generation(item: int, row: Tokens, drawn: Tokens) -> Generation:
        index, sample = divmod(item, n)
        continuation, finished = until_end(drawn, ends)
        text = continuation_text(tokenizer, row, continuation)
        return Generation(prompts[index], index, sample, text, tuple(continuation), finished, tuple(row))

    lengths = [len(tokens[item // n]) for item in range(n * len(prompts))]
    if max(lengths, default=0) + max_new_tokens > rope_threshold(model):
        batch_size = 1  # a longer text would change the rotary embeddings of the others in its batch
    how = {"strength": strength, "scale": scale, "positions": positions, **budget}
    with evaluating(model), row_block(model) if by_row else optional_steer(model, steering, **how) as steered:
        return map_batches(lengths, run, batch_size=batch_size, progress=progress, label="generating")


def prompt_tokens(model: nn.Module, tokenizer: Any, generations: Sequence[Generation], *, caller: str) -> list[Tokens]:
    """Return the tokens of the prompt from which each generation was drawn; if unknown, those of the whole prompt."""
    unknown = [i for i, g in enumerate(generations) if not g.prompt_tokens]
    rows = [list(g.prompt_tokens) for g in generations]
    if unknown:
        texts = [generations[i].prompt for i in unknown]
        for i, tokens in zip(unknown, encode(model, tokenizer, texts, max_length=None, caller=caller), strict=True):
            rows[i] = tokens
    return rows


def _continue(
    model: Any,
    tokenizer: Any,
    batch: BatchRows,
    keys: list[bytes],
    max_new_tokens: int,
    ends: list[int],
    sampling: dict[str, float],
) -> list[Tokens]:
    padding = pad_id(model, tokenizer)
    ids, mask = pad(batch.tokens, token=padding, side="left")
    device = entry_device(model)
    ids, mask = ids.to(device), mask.to(device)
    # every setting is given, so that the model's own generation configuration has no effect
    config = GenerationConfig(
        do_sample=False,
        num_beams=1,
        num_return_sequences=1,
        max_new_tokens=max_new_tokens,
        repetition_penalty=1.0,
        no_repeat_ngram_size=0,
        eos_token_id=ends or None,
        pad_token_id=padding,
    )
    processors = LogitsProcessorList([KeyedSampling(keys, prompt_length=ids.shape[1], **sampling)])
    prefilled = read_once(model, ids, mask, config, kinds=batch.kinds, begin=batch.begin)
    batch.begin(list(range(len(keys))))
    whole = model.generate(ids, attention_mask=mask, generation_config=config, logits_processor=processors, **prefilled)
    new: list[Tokens] = whole[:, ids.shape[1] :].tolist()
    return new


def _keys(prompts: list[str], steerings: list[str], n: int, seed: int) -> list[bytes]:
    # a prompt that is repeated under another steering draws the same noise, so that steerings can be compared
    occurrences: Counter[tuple[str, str]] = Counter()
    keys = []
    for one in zip(prompts, steerings, strict=True):
        keys += [sample_key(seed, one[0], occurrences[one], sample) for sample in range(n)]
        occurrences[one] += 1
    return keys


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """Return the tokens that end a text of this model."""
    ends = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    ends = ends if ends is not None else tokenizer.eos_token_id
    if ends is None:
        return []
    return [int(token) for token in (ends if isinstance(ends, (list, tuple)) else [ends])]


def until_end(drawn: Tokens, ends: list[int]) -> tuple[Tokens, bool]:
    """Return the tokens before the first of ``ends``, and whether there is one."""
    stop = next((i for i, token in enumerate(drawn) if token in ends), None)
    return (drawn, False) if stop is None else (drawn[:stop], True)


def predicting_positions(
    model: nn.Module, tokenizer: Any, generations: Sequence[Generation], *, caller: str
) -> tuple[list[Tokens], list[slice]]:
    """Return the tokens of each generation with its prompt, and the positions from which its tokens were drawn."""
    prompts = prompt_tokens(model, tokenizer, generations, caller=caller)
    rows = [[*prompt, *g.tokens] for prompt, g in zip(prompts, generations, strict=True)]
    # the last token predicts nothing, unless the end token followed it
    steps = [
        slice(len(prompt) - 1, len(row) if g.finished else len(row) - 1)
        for prompt, row, g in zip(prompts, rows, generations, strict=True)
    ]
    return rows, steps


def prompt_lengths(steps: Sequence[slice]) -> list[int]:
    """Return the length of each generation's prompt, from the positions that predict its tokens.

    The last token of the prompt predicts the first new token.
    """
    return [step.start + 1 for step in steps]


def continuation_text(tokenizer: Any, prompt: Sequence[int], new: Sequence[int]) -> str:
    """Return the text of the tokens ``new`` after those of ``prompt``, as in `Generation`."""
    # decoded together with its prompt, because some tokenizers drop a leading space
    before = tokenizer.decode(prompt, skip_special_tokens=True)
    whole = tokenizer.decode([*prompt, *new], skip_special_tokens=True)
    return str(whole[len(before) :] if whole.startswith(before) else tokenizer.decode(new, skip_special_tokens=True))


def _check_sampling(top_p: float, temperature: float, seed: int) -> None:
    if not isinstance(top_p, Real) or not 0 < top_p <= 1:
        raise ParameterError(f"top_p is {top_p!r}; it must lie in (0, 1], where 1 keeps every token.")
    if not isinstance(temperature, Real) or not 0 < temperature < float("inf"):
        raise ParameterError(f"temperature is {temperature!r}; it must be a positive number.")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ParameterError(f"seed is {seed!r}; it must be a whole number, so that a run can be repeated.")
