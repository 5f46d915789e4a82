"""The divergence of the steered next-token distribution from the base one, along texts and generations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import nn

from repsurgery.errors import NonFiniteError, ParameterError
from repsurgery.lm.batching.batches import evaluating, map_batches
from repsurgery.lm.batching.tokens import Tokens, check_texts, encode
from repsurgery.lm.generate.generate import Generation, predicting_positions, prompt_lengths
from repsurgery.lm.score.final_states import final_rows, final_steering, moved_rows
from repsurgery.lm.score.likelihood import logits_of
from repsurgery.lm.score.output_layer import OutputLayer, divergences, reads_final
from repsurgery.lm.sites.names import reading_model, resolve_site
from repsurgery.lm.sites.wrappers import behind, is_peft, unwrapped, virtual_tokens
from repsurgery.lm.steer.forward_context import steering_in_force
from repsurgery.lm.steer.placement import Placement
from repsurgery.lm.steer.placing import placements, sites_of
from repsurgery.lm.steer.positions import UNKNOWN_TURNS, Positions, Texts, columns_between, span
from repsurgery.lm.steer.row_steering import RowSteering
from repsurgery.lm.steer.steer import steer
from repsurgery.lm.steer.texts import NO_PROMPTS, require_known

__all__ = ["Direction", "Divergence", "kl_divergence"]

Direction = Literal["steered-base", "base-steered"]
"""KL(steered ‖ base), or KL(base ‖ steered), which `Fisher.kl` predicts; for small steps they agree."""

CONTINUED = Texts((), UNKNOWN_TURNS, refused=("assistant",))
"""What is known of generations, besides the lengths of their prompts."""

Compare = Callable[[list[Tokens], list[slice], Texts], torch.Tensor]
"""Takes rows of tokens, the positions of each that count, and what is known of their prompts; returns the divergences
(n,) there, in order.
"""


@dataclass(frozen=True, slots=True)
class Divergence:
    """KL(steered ‖ base), or KL(base ‖ steered), of the next-token distributions along one text, in nats.

    Attributes
    ----------
    text : str
    tokens : tuple of int
    values : tuple of float
        Of a text, one per token: the divergence of the predictions of the next token. Of a generation, one per step:
        the divergence of the predictions from which its tokens, and its end token, were drawn.
    """

    text: str
    tokens: tuple[int, ...]
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over tokens."""
        return float(sum(self.values) / len(self.values))


def kl_divergence(
    model: nn.Module,
    tokenizer: Any,
    texts: Sequence[str] | Sequence[Generation],
    steering: Any,
    *,
    strength: float | None = None,
    positions: Positions | None = None,
    direction: Direction = "steered-base",
    max_length: int | None = None,
    batch_size: int = 4,
    progress: bool = True,
) -> list[Divergence]:
    """Return the divergence between steered and base next-token distributions along each text, in order.

    Base and steered states are read in a pass each, and the output layer runs only at the positions that count. A
    steering at "final" alone needs one pass, because it can be applied to the base states. Inside an open block of
    `steer`, and for models whose output is more than one layer, both passes run the whole model.

    Parameters
    ----------
    model, tokenizer
        A transformers decoder and its tokenizer; neither is changed.
    texts : sequence of n strings or of n `Generation`
        Of generations only the steps that wrote them count, not their prompts.
    steering, strength, positions
        See `steer` and `generate`. Along generations the same positions are steered as by `generate`. A plain text
        does not say where its prompt ends, so that only "all" is accepted there; "assistant" is always refused.
    direction : {"steered-base", "base-steered"}
        KL(steered ‖ base), or KL(base ‖ steered), the price that `Fisher.kl` predicts.
    max_length, batch_size, progress
        As in `extract`; generations are never truncated.

    Guarantees
    ----------
    The values along a generation are those along its text with its prompt
    (test_the_divergence_along_a_generation_is_that_of_its_steps), at whatever positions `generate` steers
    (test_positions_are_those_that_generation_steers).
    Equal to a pass of the whole model with and one without the steering
    (test_the_divergence_is_that_of_two_whole_passes).
    """
    if direction not in get_args(Direction):
        raise ParameterError(f"direction is {direction!r}; it must be one of {list(get_args(Direction))}.")
    if steering is None:
        raise ParameterError("kl_divergence got steering=None; give the steering to be compared with the base model.")
    placed = placements(unwrapped(model), sites_of(steering), strength=strength, positions=positions)
    compare = _comparison(model, tokenizer, placed, direction)
    tokens, steps, shown, prompts = _read(model, tokenizer, texts, max_length)
    require_known(placed, NO_PROMPTS if prompts is None else CONTINUED, caller="kl_divergence")

    def run(batch: list[int]) -> list[Divergence]:
        known = NO_PROMPTS if prompts is None else replace(CONTINUED, prompts=tuple(prompts[i] for i in batch))
        values = compare([tokens[i] for i in batch], [steps[i] for i in batch], known)
        if not bool(torch.isfinite(values).all()):
            raise NonFiniteError(
                "kl_divergence got logits beyond the model's number range: the steered state overflows in the output "
                "layer. Lower the strength, or run the model in a wider dtype."
            )
        parts = torch.split(values, [len(_positions(tokens[i], steps[i])) for i in batch])
        return [Divergence(*shown[i], tuple(part.tolist())) for i, part in zip(batch, parts, strict=True)]

    with evaluating(model):
        return map_batches(list(map(len, tokens)), run, batch_size=batch_size, progress=progress, label="comparing")


def _read(
    model: nn.Module, tokenizer: Any, texts: Sequence[Any], max_length: int | None
) -> tuple[list[Tokens], list[slice], list[tuple[str, tuple[int, ...]]], list[int] | None]:
    """Return the tokens to read, the positions whose predictions count, text and tokens to show, lengths of prompts."""
    if not isinstance(texts, str) and texts and all(isinstance(text, Generation) for text in texts):
        rows, steps = predicting_positions(model, tokenizer, texts, caller="kl_divergence")
        return rows, steps, [(g.text, g.tokens) for g in texts], prompt_lengths(steps)
    texts = check_texts(texts, caller="kl_divergence")
    rows = encode(model, tokenizer, texts, max_length=max_length, caller="kl_divergence")
    shown = [(text, tuple(row)) for text, row in zip(texts, rows, strict=True)]
    return rows, [slice(len(row)) for row in rows], shown, None


def _positions(row: Tokens, counted: slice) -> range:
    return range(*counted.indices(len(row)))


def _comparison(model: nn.Module, tokenizer: Any, placed: Sequence[Placement], direction: Direction) -> Compare:
    """Return the cheapest comparison that is exact for this model and these steerings."""
    inner = unwrapped(model)

    def whole(rows: list[Tokens], counted: list[slice], known: Texts) -> torch.Tensor:
        base = logits_of(model, tokenizer, rows, known)
        with steer(model, placed):
            steered = logits_of(model, tokenizer, rows, known)
        # text by text, so that only the logits in the model's own dtype are in memory for the whole batch
        parts = [
            divergences(*_ordered(of_steered[kept], of_base[kept], direction))
            for of_steered, of_base, kept in zip(steered, base, counted, strict=True)
        ]
        return torch.cat(parts)

    if not _ends_after_final(model, inner, placed):
        return whole
    head, at_final = OutputLayer(inner), final_steering(inner, placed)

    def from_states(rows: list[Tokens], counted: list[slice], known: Texts) -> torch.Tensor:
        base = final_rows(inner, tokenizer, rows, counted, known)
        if at_final is not None:
            steered = _steered(base, rows, counted, at_final, placed[0].positions, known)
        else:
            with steer(model, placed):
                steered = final_rows(inner, tokenizer, rows, counted, known)
        moved = moved_rows(base, steered)
        found = head.divergences(*_ordered(steered[moved], base[moved], direction))
        return found.new_zeros(len(base)).index_copy(0, moved.to(found.device), found)

    return from_states


def _ends_after_final(model: nn.Module, inner: nn.Module, placed: Sequence[Placement]) -> bool:
    """Return whether all that happens after the site "final" is the output layer, with nothing steered there."""
    # a data-parallel wrapper must run itself, virtual tokens are in the wrapper, and an open block may steer anything
    wrapped = behind(model) is not inner and not is_peft(behind(model))
    if wrapped or virtual_tokens(model) or steering_in_force(inner) or not reads_final(inner):
        return False
    below = {id(module) for module in reading_model(inner).modules()}
    return all(id(resolve_site(inner, p.site).module) in below for p in placed)


def _steered(
    states: torch.Tensor,
    rows: list[Tokens],
    counted: list[slice],
    steering: RowSteering,
    positions: Positions,
    known: Texts,
) -> torch.Tensor:
    """Return final states (n, d) of the ``counted`` positions of rows of tokens as the hook steers them."""
    if positions == "all":
        return steering(states)
    assert isinstance(known.prompts, tuple)
    chosen = []
    for row, kept, prompt in zip(rows, counted, known.prompts, strict=True):
        chosen.append(columns_between(*span(positions, prompt), len(row))[kept])
    index = torch.cat(chosen).nonzero().squeeze(1).to(states.device)
    return states.index_copy(0, index, steering(states[index]))


def _ordered(steered: torch.Tensor, base: torch.Tensor, direction: Direction) -> tuple[torch.Tensor, torch.Tensor]:
    return (steered, base) if direction == "steered-base" else (base, steered)
