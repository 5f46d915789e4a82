"""Read each prompt once, however many continuations it gets."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import GenerationConfig

from repsurgery.lm.generate.decode_pass import is_plain_cache
from repsurgery.lm.sites.wrappers import virtual_tokens
from repsurgery.lm.steer.turns import prompt_turns, turns_of_call

__all__ = ["read_once"]


def read_once(
    model: Any,
    ids: torch.Tensor,
    mask: torch.Tensor,
    config: GenerationConfig,
    *,
    kinds: Sequence[int] = (),
    begin: Callable[[list[int]], None] = lambda rows: None,
) -> dict[str, Any]:
    """Return arguments with which ``model.generate`` continues prompts (n, length), each distinct row read once.

    The cache holds all but the last token of each row, copied for equal rows. The result is empty, so that generation
    reads every row, where no two rows are equal or the model's state is more than keys and values (sliding windows,
    recurrent states, virtual tokens).

    Parameters
    ----------
    ids, mask : (n, length) tensors
        Padded on the left.
    config : GenerationConfig
        The configuration of the continuations.
    kinds : sequence of int
        Rows of different kinds are read on their own, though their tokens are equal; empty where all are alike.
    begin : function of a list of rows
        Called before the pass, with the rows that it reads.

    Guarantees
    ----------
    Reading once changes no continuation (test_reading_a_prompt_once_changes_no_continuation).
    """
    kind = torch.tensor(kinds or [0] * len(ids), device=ids.device)[:, None]
    rows, index = torch.unique(torch.cat([kind, ids.masked_fill(mask == 0, -1)], dim=1), dim=0, return_inverse=True)
    if len(rows) == len(ids) or ids.shape[1] == 1 or virtual_tokens(model):
        return {}
    first = torch.stack([(index == row).nonzero()[0, 0] for row in range(len(rows))])
    one_token = copy.deepcopy(config)
    one_token.update(max_new_tokens=1, return_dict_in_generate=True)
    begin(first.tolist())
    # the model's own generate prepares masks and positions, and shows a steering block where the prompt ends
    turns = turns_of_call()
    with prompt_turns(None if turns is None else lambda: turns()[first]):
        read = model.generate(ids[first], attention_mask=mask[first], generation_config=one_token)
    cache = read.past_key_values
    if not is_plain_cache(cache):
        return {}
    cache.crop(-1)
    cache.batch_select_indices(index)
    return {"past_key_values": cache}
