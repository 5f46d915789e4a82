"""Read what was generated once more: how likely the unsteered model finds it, and what a gate makes of each step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from repsurgery.gates import Gate
from repsurgery.lm.batching import entry_device, evaluating, pad, pad_id, run_batches, sorted_batches
from repsurgery.lm.generate.generate import Generation, prompt_tokens
from repsurgery.lm.sites.names import resolve_site
from repsurgery.lm.steer.hooks import attach
from repsurgery.lm.steer.torch_maps import to_rows

__all__ = ["Reread", "reread"]


@dataclass(frozen=True, slots=True)
class Reread:
    """One generation, read by the model as it stands.

    Attributes
    ----------
    values : tuple of float
        log p(token | everything before it) of each sampled token, the end token left out.
    codes : tuple of int
        The gate's class index at each position that predicted a token, the end token included.
    """

    values: tuple[float, ...]
    codes: tuple[int, ...]


def reread(
    model: nn.Module,
    tokenizer: Any,
    generations: Sequence[Generation],
    *,
    gate: Gate,
    site: str = "final",
    batch_size: int = 16,
    progress: bool = True,
) -> list[Reread]:
    """Return, per generation and in order, its log-likelihoods and the gate's decisions, from one pass over it.

    The sampled tokens themselves are read, not their text tokenised anew. A state at ``site`` depends on the tokens
    before it and not on what steers the model at that same site, so these are the very decisions that a steering
    with this gate took there, or would have taken.

    Parameters
    ----------
    model, tokenizer
        The decoder that generated, now unsteered, and its tokenizer.
    generations : sequence of n `Generation`
    gate : Gate
    site, batch_size, progress
        As in `extract`.

    Guarantees
    ----------
    The decisions are those taken while generating, of a prompt that was cut too
    (test_a_cut_prompt_is_read_as_it_was_cut, test_rereading_repeats_the_gates_decisions).
    """
    prompts = prompt_tokens(model, tokenizer, generations, caller="reread")
    rows = [[*prompt, *g.tokens] for prompt, g in zip(prompts, generations, strict=True)]
    found: dict[int, Reread] = {}
    states: list[torch.Tensor] = []

    def run(batch: list[int]) -> None:
        states.clear()
        ids, mask = pad([rows[i] for i in batch], token=pad_id(model, tokenizer), side="right")
        device = entry_device(model)
        logits = model(input_ids=ids.to(device), attention_mask=mask.to(device), use_cache=False).logits
        # prompt tuning puts virtual tokens before the text
        logits, state = (tensor[:, -ids.shape[1] :] for tensor in (logits, states[0]))
        for row, i in enumerate(batch):
            found[i] = _read(logits[row], state[row], len(prompts[i]), generations[i], gate)

    handle = attach(resolve_site(model, site), states.append)
    try:
        with evaluating(model):
            run_batches(sorted_batches(list(map(len, rows)), batch_size), run, progress=progress, label="rereading")
    finally:
        handle.remove()
    return [found[i] for i in range(len(rows))]


def _read(logits: torch.Tensor, state: torch.Tensor, prompt: int, generation: Generation, gate: Gate) -> Reread:
    new = torch.tensor(generation.tokens, dtype=torch.long, device=logits.device)
    end = prompt + len(new)
    log_p = logits[prompt - 1 : end - 1].float().log_softmax(dim=-1)
    values = log_p.gather(1, new[:, None])[:, 0].tolist()
    steps = to_rows(state[prompt - 1 : end if generation.finished else end - 1])
    return Reread(tuple(values), tuple(np.asarray(gate.codes(steps)).tolist()))
