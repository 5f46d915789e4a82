"""Passes of a model with a shift δ = 0 of each text at some sites, and gradients of the final states in the shifts."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from repsurgery.errors import ModelError, NonFiniteError, ParameterError, ShapeError, SiteError
from repsurgery.lm.batching.batches import entry_device
from repsurgery.lm.batching.tokens import pad, pad_id
from repsurgery.lm.price.positions import Reading
from repsurgery.lm.read.states import require_visited, runner
from repsurgery.lm.sites.families import family_of
from repsurgery.lm.sites.names import Site, resolve_site
from repsurgery.lm.sites.wrappers import unwrapped, virtual_tokens
from repsurgery.lm.steer.hooks import Visit, attach
from repsurgery.lm.steer.texts import reading_texts

__all__ = ["ShiftedPass", "require_decoder", "shifted_passes"]

_NO_GRADIENT = (
    "No gradient reaches the final states from site {name!r} ({path}): a module between them runs without gradients "
    "(under no_grad or inference_mode, or quantised), or the model does not use this state. Load the model in float32 "
    "or bfloat16 without such a wrapper, or choose 'final', which needs no gradients."
)


@dataclass(frozen=True, slots=True, eq=False)
class ShiftedPass:
    """One pass over a batch of texts.

    Attributes
    ----------
    final : (batch, length, d) tensor
        The final states, a differentiable function of the shifts.
    counted : (batch, length) tensor of bool
        The positions that count.
    shifts : dict of site to (batch, 1, d) tensor
    sites : tuple of Site
    """

    final: torch.Tensor
    counted: torch.Tensor
    shifts: dict[str, torch.Tensor]
    sites: tuple[Site, ...]

    def rows(self) -> torch.Tensor:
        """Return the final states (n, d) of the positions that count, without gradients."""
        return self.final.detach()[self.counted]

    def gradients(self, cotangents: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return, per site, the gradient (batch, d) of Σ cotangent · state over the rows (n, d) that count."""
        outer = torch.zeros_like(self.final)
        outer[self.counted] = cotangents.to(outer)
        shifts = list(self.shifts.values())
        found = torch.autograd.grad(self.final, shifts, outer, retain_graph=True, allow_unused=True)
        for site, gradient in zip(self.sites, found, strict=True):
            if gradient is None:
                raise SiteError(_NO_GRADIENT.format(name=site.name, path=site.path))
            if not bool(torch.isfinite(gradient).all()):
                raise NonFiniteError(
                    f"The gradient at {site.name!r} holds NaN or infinity. Load the model in float32 or bfloat16."
                )
        return {site.name: g[:, 0].double().cpu() for site, g in zip(self.sites, found, strict=True)}


def require_decoder(model: nn.Module, *, caller: str) -> nn.Module:
    """Return the model inside ``model`` if it is a causal language model whose output layer reads "final" alone."""
    inner = unwrapped(model)
    family = family_of(inner)
    if family.encoder_decoder or family.head_readers != ("",):
        raise ModelError(
            f"{caller} needs a decoder that predicts the next token from its final state; {type(inner).__name__} is "
            "not one. Load a causal language model."
        )
    if virtual_tokens(model):
        raise ParameterError(
            f"{caller} runs a model without its PEFT wrapper, which holds the virtual tokens of this one. Merge or "
            "remove the prompt tuning first."
        )
    return inner


@contextmanager
def shifted_passes(
    model: nn.Module, tokenizer: Any, sites: Sequence[str], reading: Reading
) -> Iterator[Callable[[list[int]], ShiftedPass]]:
    """Set hooks while the block runs; the function that it yields makes one pass over the texts at some indices.

    Gradients are computed only where there are ``sites``. Below the first of them nothing is kept for them.
    """
    resolved = tuple(resolve_site(model, name) for name in sites)
    last = resolve_site(model, "final")
    run = runner(model, model, [*resolved, last])
    padding = pad_id(model, tokenizer)
    shifts: dict[str, torch.Tensor] = {}
    final: list[torch.Tensor] = []
    counted = moved = torch.empty(0)

    def visitor(site: Site) -> Visit:
        def visit(state: torch.Tensor) -> torch.Tensor:
            n, length = counted.shape
            if state.shape[:-1].numel() != n * length:
                raise ShapeError(
                    f"At {site.name!r} a state of shape {tuple(state.shape)} came for {n} x {length} tokens. "
                    "Choose a module that returns (batch, length, d)."
                )
            states = (state if shifts else state.detach()).reshape(n, length, -1)
            shift = torch.zeros(n, 1, states.shape[-1], dtype=state.dtype, device=state.device, requires_grad=True)
            shifts[site.name] = shift
            return (states + moved[..., None].to(state) * shift).view(state.shape)

        return visit

    def keep(state: torch.Tensor) -> None:
        final.append(state)

    def read(batch: list[int]) -> ShiftedPass:
        nonlocal counted, moved
        ids, mask = pad([reading.tokens[i] for i in batch], token=padding, side="right")
        counted, moved = reading.counted(batch, ids.shape[1]), reading.moved(batch, ids.shape[1])
        shifts.clear()
        final.clear()
        device = entry_device(model)
        with torch.set_grad_enabled(bool(resolved)), reading_texts(reading.known(batch)):
            _run(run, ids.to(device), mask.to(device), resolved)
            require_visited([*resolved, last], {**shifts, **({last.name: final} if final else {})})
            states = final[-1].reshape(*counted.shape, -1)
        if resolved and not states.requires_grad:
            raise SiteError(_NO_GRADIENT.format(name=resolved[0].name, path=resolved[0].path))
        return ShiftedPass(states, counted.to(states.device), {s.name: shifts[s.name] for s in resolved}, resolved)

    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.no_grad())  # leaving inference mode turns gradients on
        # the final state is read last, so that a shift at the same module is in it
        for site in resolved:
            stack.callback(attach(site, visitor(site)).remove)
        stack.callback(attach(last, keep).remove)
        yield read


def _run(run: Callable[..., Any], ids: torch.Tensor, mask: torch.Tensor, sites: Sequence[Site]) -> None:
    try:
        run(input_ids=ids, attention_mask=mask)
    except RuntimeError as error:
        if "nference tensor" not in str(error):
            raise
        raise SiteError(_NO_GRADIENT.format(name=sites[0].name, path=sites[0].path)) from error
