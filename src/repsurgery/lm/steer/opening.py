"""Open a steering block on a model, and say at its end if it did not steer."""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch import nn

from repsurgery.errors import SteeringError, SteeringWarning
from repsurgery.lm.sites.wrappers import behind, unwrapped
from repsurgery.lm.steer.block import Block
from repsurgery.lm.steer.forward_context import ForwardContext, tracking
from repsurgery.lm.steer.hooks import eagerly

__all__ = ["opened"]


@contextmanager
def opened(model: nn.Module, block: Block) -> Iterator[ForwardContext]:
    """Track the passes of ``model`` for ``block``, and close the block at the end.

    Raises
    ------
    SteeringError
        At the end, where `Block.problem` finds one. If the block ends in another error, a `SteeringWarning` is issued
        instead.
    """
    with ExitStack() as stack:
        stack.enter_context(eagerly())
        context = stack.enter_context(tracking(unwrapped(model), block, around=behind(model)))
        stack.callback(block.close)
        try:
            yield context
        except Exception:
            if problem := _problem(block, context):
                # the caller's own ``with`` statement is two context managers above
                warnings.warn(problem, SteeringWarning, stacklevel=5)
            raise
        if problem := _problem(block, context):
            raise SteeringError(problem)


def _problem(block: Block, context: ForwardContext) -> str | None:
    return block.problem(context_intact=context.intact(), others_generate=context.generates_elsewhere())
