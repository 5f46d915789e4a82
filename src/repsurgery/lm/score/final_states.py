"""States at "final", read in one pass: a steering that acts there alone is applied to them as rows."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from repsurgery.lm.batching.batches import entry_device
from repsurgery.lm.batching.tokens import Tokens, pad, pad_id
from repsurgery.lm.sites.names import reading_model
from repsurgery.lm.steer.placement import Placement
from repsurgery.lm.steer.positions import Texts
from repsurgery.lm.steer.row_steering import RowSteering
from repsurgery.lm.steer.steer import prepare
from repsurgery.lm.steer.texts import reading_texts

__all__ = ["final_rows", "final_steering", "moved_rows"]


def final_steering(model: nn.Module, placed: Sequence[Placement]) -> RowSteering | None:
    """Return the steering of final states where ``placed`` acts at "final" alone; None where it needs its own pass.

    The sites and widths of all steerings are checked.
    """
    prepared = [prepare(model, p.site, p.function, p.strength)[1] for p in placed]
    return prepared[0] if [p.site for p in placed] == ["final"] else None


def final_rows(
    model: nn.Module, tokenizer: Any, rows: Sequence[Tokens], counted: Sequence[slice], prompts: Texts | Sequence[int]
) -> torch.Tensor:
    """Return the states (n, d) at "final" of the ``counted`` positions of each row of tokens, in order.

    The output layer does not run. ``prompts`` are the lengths of the rows' prompts, see `reading_texts`.
    """
    ids, mask = pad(rows, token=pad_id(model, tokenizer), side="right")
    device = entry_device(model)
    with reading_texts(prompts):
        output = reading_model(model)(input_ids=ids.to(device), attention_mask=mask.to(device), use_cache=False)
    states: torch.Tensor = output.last_hidden_state
    return torch.cat([row[columns] for row, columns in zip(states, counted, strict=True)])


def moved_rows(rows: torch.Tensor, steered: torch.Tensor) -> torch.Tensor:
    """Return the indices of the rows (n, d) that differ from their steered ones: only their predictions change."""
    return (steered != rows).any(dim=1).nonzero().squeeze(1)
