"""What the price of a steering follows from: its site's Fisher matrix, and the positions that its gate selects."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import nn

from repsurgery.arrays import Label
from repsurgery.errors import DataError, ParameterError
from repsurgery.lm.batching.batches import evaluating, run_batches, sorted_batches
from repsurgery.lm.generate.generate import Generation
from repsurgery.lm.price.fisher import fisher
from repsurgery.lm.price.positions import Shifted, reading_of
from repsurgery.lm.read.states import reader
from repsurgery.lm.steer.placement import Placement
from repsurgery.lm.steer.placing import refuse_choices
from repsurgery.lm.steer.row_steering import as_steering
from repsurgery.moments import ClassMoments, Moments
from repsurgery.price import Price

__all__ = ["price"]


def price(
    model: nn.Module,
    tokenizer: Any,
    texts: Sequence[str] | Sequence[Generation],
    steering: Any,
    *,
    site: str | None = None,
    samples: int = 16,
    seed: int = 0,
    positions: Shifted | None = None,
    max_length: int | None = None,
    batch_size: int = 8,
    progress: bool = True,
) -> Price:
    """Return what the price of ``steering`` follows from, measured along ``texts``.

    Parameters
    ----------
    model, tokenizer
        A transformers decoder and its tokenizer; neither is changed.
    texts : sequence of n strings or of n `Generation`
        Ordinary text of the kind that should not suffer.
    steering : fitted estimator, SteeringFunction, AffineMap or Placement
        A `Placement` states its site and positions; the price is that of its function, whatever the strength.
    site : str or None
        None uses the site in its origin, else "final".
    samples, seed
        See `fisher`.
    positions : {"all", "generated"} or None
        The positions that will be steered. "generated" needs generations, because a plain text has no generated
        positions. None is "generated" for generations where the origin of the steering says so, else "all".
    max_length, batch_size, progress
        As in `extract`.

    Returns
    -------
    Price
        The Fisher matrix, the moments of the positions that are steered, and their share. ``function.with_price``
        stores it with a steering function.

    Guarantees
    ----------
    The price of a gated function is that of the displaced rows (test_the_price_of_a_gate_is_that_of_its_rows).
    Matrix and moments are those of the same positions (test_matrix_and_moments_are_of_the_same_positions).
    A soft gate is refused before the model runs (test_a_soft_gate_is_refused_before_the_model_runs).
    """
    if isinstance(steering, Placement):
        refuse_choices({"site": site}, caller="price")
        steering = steering.function.with_origin(site=steering.site, positions=steering.positions)
    function = as_steering(steering, caller="price")
    if not function.gate.hard:
        raise ParameterError(
            "price got a function with a soft gate, whose price does not follow from moments. Compute its strength "
            "from rows: strength = sqrt(budget / fisher.kl_on(f, X)), with X the vectors of all positions."
        )
    place = site or function.origin.site or "final"
    if positions is None:
        own = function.origin.positions == "generated" and all(isinstance(text, Generation) for text in texts)
        positions = "generated" if own else "all"
    reading = reading_of(model, tokenizer, texts, max_length=max_length, shifted=positions, caller="price")
    how: dict[str, Any] = {"samples": samples, "seed": seed, "positions": positions, "max_length": max_length}
    found = fisher(model, tokenizer, texts, sites=[place], batch_size=batch_size, progress=progress, **how)[place]
    tokens = reading.tokens
    steered = reading.steps if positions == "generated" else [slice(0, len(row)) for row in tokens]
    selected: dict[Label | None, Moments] = {label: Moments.empty(function.dim) for label in function.maps}
    with evaluating(model), reader(model, tokenizer, [place], "all") as read:

        def run(batch: list[int]) -> None:
            states = read([tokens[i] for i in batch])[place]
            parts = np.split(states, np.cumsum([len(tokens[i]) for i in batch])[:-1])
            rows = np.concatenate([part[steered[i]] for i, part in zip(batch, parts, strict=True)])
            masks = function.masks(rows)
            added = {k: Moments.of_rows(rows, np.flatnonzero(mask), None, "float64") for k, mask in masks.items()}
            selected.update({label: selected[label] + moments for label, moments in added.items()})

        batches = sorted_batches(list(map(len, tokens)), batch_size)
        run_batches(batches, run, progress=progress, label=f"reading {place}")
    total = sum(len(range(*one.indices(len(row)))) for one, row in zip(steered, tokens, strict=True))
    if all(moments.count == total for moments in selected.values()):
        return Price(found, next(iter(selected.values())), 1.0, place)
    if not all(moments.count for moments in selected.values()):
        raise DataError("The gate selects no position of these texts for some map, so it has no price there.")
    by_label = {label: moments for label, moments in selected.items() if label is not None}
    return Price(found, ClassMoments(by_label), {label: m.count / total for label, m in by_label.items()}, place)
