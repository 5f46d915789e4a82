"""`train`: AdamW on a few parameters, saved as it goes, so that an interrupted training continues where it stopped."""

import time
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import nn

from repsurgery.checkpoint import SAVE_SECONDS, recall, uninterrupted
from repsurgery.errors import ModelError, NonFiniteError
from repsurgery.files import Contents, read_file, write_file
from repsurgery.lm.batching.batches import out_of_memory
from repsurgery.progress import progress_bar
from repsurgery.studies.common.adam_state import adam_arrays, restore_adam
from repsurgery.studies.toxicity.decoding.parts import Workshop

__all__ = ["train"]

KIND = "training-state"
_GRADIENT_NORM = 1.0
_WARMUP = 0.06
"""The share of all steps over which the learning rate rises; it falls linearly to zero afterwards."""


def train(
    parameters: Mapping[str, nn.Parameter],
    loss_of: Callable[[int], torch.Tensor],
    *,
    steps: int,
    learning_rate: float,
    workshop: Workshop,
    label: str,
) -> float:
    """Take ``steps`` steps of AdamW on ``parameters``, and return the mean loss of the last tenth of the steps.

    Parameters
    ----------
    parameters : mapping of name to Parameter
    loss_of : function of the number of a step
        The loss of that step; it must depend on the number and the parameters alone.
    steps : int
    learning_rate : float
    workshop : Workshop
        Its state is saved at least every 30 seconds, and when the training is interrupted.
    label : str
        What is trained, for the progress bar and errors.

    Guarantees
    ----------
    A resumed training gives the same parameters as one without interruption
    (test_a_resumed_training_gives_the_same_parameters).
    """
    optimiser = torch.optim.AdamW(parameters.values(), lr=learning_rate, weight_decay=0.01)
    losses: list[float] = []
    first = _resume(parameters, optimiser, losses, workshop)
    started, saved = time.process_time(), time.monotonic()

    def save() -> None:
        spent = workshop.seconds + time.process_time() - started
        header = {"losses": losses, "seconds": spent}
        write_file(workshop.state, Contents(KIND, header, adam_arrays(parameters, optimiser)))

    with progress_bar(label, steps, show=workshop.progress, done=first) as advance:
        try:
            for step in range(first, steps):
                rate = learning_rate * _rate(step / steps)
                with uninterrupted():
                    losses.append(_step(parameters, optimiser, loss_of, step, rate, label))
                advance(1)
                if time.monotonic() - saved > SAVE_SECONDS:
                    save()
                    saved = time.monotonic()
        except KeyboardInterrupt:
            if losses:
                save()
            raise
    return float(np.mean(losses[-max(1, steps // 10) :]))


def _step(
    parameters: Mapping[str, nn.Parameter],
    optimiser: torch.optim.Optimizer,
    loss_of: Callable[[int], torch.Tensor],
    step: int,
    rate: float,
    label: str,
) -> float:
    for group in optimiser.param_groups:
        group["lr"] = rate
    try:
        loss = loss_of(step)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        raise ModelError(
            f"Memory ran out in step {step} of the training of {label!r}. Free memory or use a smaller model, and run "
            "the same command again; it continues from the last saved step."
        ) from error
    if not torch.isfinite(loss):
        raise NonFiniteError(
            f"The loss of {label!r} is {loss.item()} in step {step}. Use a model in float32, or check the texts."
        )
    nn.utils.clip_grad_norm_(parameters.values(), _GRADIENT_NORM)
    optimiser.step()
    return loss.item()


def _rate(share: float) -> float:
    return min(1.0, share / _WARMUP + 0.1) if share < _WARMUP else (1 - share) / (1 - _WARMUP)


def _resume(
    parameters: Mapping[str, nn.Parameter],
    optimiser: torch.optim.Optimizer,
    losses: list[float],
    workshop: Workshop,
) -> int:
    """Restore what was saved, and return the number of finished steps."""
    contents, _ = recall(workshop.state, lambda path: read_file(path, kind=KIND))
    if contents is None:
        return 0
    restore_adam(parameters, optimiser, contents.arrays)
    losses += contents.header["losses"]
    workshop.seconds += contents.header["seconds"]
    return len(losses)
