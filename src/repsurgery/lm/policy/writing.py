"""Let a model continue prompts, and store the texts of each part at once, so that nothing is written twice."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from repsurgery.lm.generate.generate import Generation, generate
from repsurgery.lm.policy.notes import Notes, notes_in
from repsurgery.lm.sites.wrappers import unwrapped
from repsurgery.lm.steer.forward_context import excuse_blocks
from repsurgery.progress import progress_bar

__all__ = ["write"]

AT_ONCE = 100
"""Continuations that are written before they are stored, approximately."""


def write(
    model: nn.Module,
    tokenizer: Any,
    prompts: Sequence[str],
    samples: int,
    *,
    folder: Path | None,
    progress: bool,
    **how: Any,
) -> list[Generation]:
    """Return what `generate` returns for these ``prompts``; texts in ``folder`` are read instead of written again.

    A sample depends on its prompt, the occurrence of the prompt and its own number alone, so that fewer samples are
    the first of more.

    Parameters
    ----------
    model, tokenizer
    prompts : sequence of str
        A prompt may occur several times; each occurrence has texts of its own.
    samples : int
    folder : path or None
        It belongs to this model, its steering and the sampling, whatever the prompts; None stores nothing.
    progress : bool
    how
        Other arguments of `generate`.
    """
    occurrences = Counter(prompts)
    notes = notes_in(None if folder is None else folder / "texts.jsonl")
    # the longest first: little padding, and the largest memory is needed at once
    distinct = sorted(occurrences, key=len, reverse=True)
    missing = {prompt for prompt in distinct if not _finished(notes, prompt, occurrences[prompt], samples)}
    if not missing:
        excuse_blocks(unwrapped(model))
    step = max(1, AT_ONCE // samples)
    done = len(distinct) - len(missing)
    with progress_bar("writing: prompts", len(distinct), show=progress and bool(missing), done=done) as advance:
        # parts are cut before finished prompts are left out, so that a resumed run forms the same batches
        for start in range(0, len(distinct), step):
            part = [prompt for prompt in distinct[start : start + step] if prompt in missing]
            if part:
                # all occurrences of a prompt are asked for in one call, which counts them to give each its own noise
                asked = [prompt for prompt in part for _ in range(occurrences[prompt])]
                written = generate(model, tokenizer, asked, n=samples, progress=False, **how)
                notes.note(_by_prompt(written, samples))
            advance(len(part))
    return _in_order(notes, prompts, samples)


def _finished(notes: Notes, prompt: str, occurrences: int, samples: int) -> bool:
    rows = notes.get(prompt, ())[:occurrences]
    return len(rows) == occurrences and all(len(row) >= samples for row in rows)


def _by_prompt(written: Sequence[Generation], samples: int) -> dict[str, list[list[Any]]]:
    """Return, per prompt, one list of texts for each of its occurrences."""
    rows: dict[str, list[list[Any]]] = {}
    for start in range(0, len(written), samples):
        row = written[start : start + samples]
        texts = [[g.text, list(g.tokens), g.finished, list(g.prompt_tokens)] for g in row]
        rows.setdefault(row[0].prompt, []).append(texts)
    return rows


def _in_order(notes: Notes, prompts: Sequence[str], samples: int) -> list[Generation]:
    met: Counter[str] = Counter()
    generations = []
    for index, prompt in enumerate(prompts):
        for sample, (text, tokens, finished, read) in enumerate(notes[prompt][met[prompt]][:samples]):
            generations.append(Generation(prompt, index, sample, text, tuple(tokens), finished, tuple(read)))
        met[prompt] += 1
    return generations
